"""A gymnasium wrapper that names the environment of a worker process which exits, or misses a file or a connection."""

from __future__ import annotations

from typing import Any

import gymnasium

from ppo_bench.common.errors import ENV_ERRORS, RunError, as_run_error


class EnvErrors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that raises `RunError`, with the environment's name, for `ENV_ERRORS` of the environment."""

    def __init__(self, env: Any, name: str) -> None:
        """`name` is the environment's name in messages."""
        super().__init__(env)
        self._name = name

    def reset(self, **options: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        try:
            return self.env.reset(**options)
        except ENV_ERRORS as error:
            raise self._failure("reset", error) from error

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        try:
            return self.env.step(action)
        except ENV_ERRORS as error:
            raise self._failure("step", error) from error

    def _failure(self, method: str, error: BaseException) -> RunError:
        return as_run_error(f"{self._name}: {method}", error)
