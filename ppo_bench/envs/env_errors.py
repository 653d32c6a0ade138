"""A gymnasium wrapper that names the environment whose code calls `sys.exit` or fails with a file or a connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium

from ppo_bench.common.errors import Failed, failure_of

ERRORS = (OSError, EOFError, SystemExit)
"""Errors that look as if they were the program's own: a missing file, a lost worker process, an exit."""


class EnvErrors(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that raises `Failed`, with the environment's name, for `ERRORS` of the environment."""

    def __init__(self, build: Callable[[], Any], name: str) -> None:
        """`build` makes the environment, `name` is its name in messages."""
        self._name = name
        try:
            super().__init__(build())
        except ERRORS as error:
            raise self._failure("its constructor", error) from error

    def reset(self, **options: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        try:
            return self.env.reset(**options)
        except ERRORS as error:
            raise self._failure("reset", error) from error

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        try:
            return self.env.step(action)
        except ERRORS as error:
            raise self._failure("step", error) from error

    def close(self) -> None:
        """See `gymnasium.Env.close`."""
        try:
            self.env.close()
        except ERRORS as error:
            raise self._failure("close", error) from error

    def _failure(self, method: str, error: BaseException) -> Failed:
        return failure_of(f"{self._name}: {method}", error)
