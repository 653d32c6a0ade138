"""Vectorisation of gymnasium environments by `SyncVectorEnv` (this process) or `AsyncVectorEnv` (a process each)."""

from __future__ import annotations

import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np

from ppo_bench.common.errors import ENV_ERRORS, ConfigError, RunError, as_run_error, one_line
from ppo_bench.envs.base import Backend

SPACES = ("observation", "action") * 2
"""The kinds of the spaces that `get_spaces` returns."""


def require_vectorization(vectorization: str) -> None:
    """Raise `ConfigError` unless `vectorization` is sync or async."""
    if vectorization not in ("sync", "async"):
        raise ConfigError(f"backend.vectorization={vectorization}: choose sync or async")


def without_worker_processes(backend: Backend) -> Backend:
    """The backend without processes of its own, which cannot be started safely once a training has threads."""
    return replace(backend, vectorization="sync") if hasattr(backend, "vectorization") else backend  # type: ignore[type-var]


class GymVectorEnv:
    """N environments that `build` makes, with next-step autoreset."""

    def __init__(
        self, env_id: str, build: Callable[[], Any], num_envs: int, vectorization: str, spaces: Sequence[Any]
    ) -> None:
        """`spaces` is what `get_spaces` must return for each environment. Raises `ConfigError` if one has others."""
        from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

        # What gymnasium says of errors in worker processes in addition to their traceback; for `RunError`, the
        # traceback too.
        known = r"(?s).*(Received the following error|Raising the last exception|ppo_bench\.common\.errors\.RunError: )"
        warnings.filterwarnings("ignore", known, module="gymnasium")
        self._id, self._lost_worker = env_id, False
        self._has_workers = vectorization == "async"
        kind = AsyncVectorEnv if self._has_workers else SyncVectorEnv
        each = [
            functools.partial(_build_env, build, os.getpid(), spaces, f"environment {i} of {env_id}")
            for i in range(num_envs)
        ]
        try:
            self._envs: Any = kind(each, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
        except EOFError as error:
            raise RunError(f"a worker process of {env_id} has ended as it began") from error
        self._require_same(env_id, spaces)

    def _require_same(self, env_id: str, spaces: Sequence[Any]) -> None:
        for i, found in enumerate(self._call(self._envs.get_attr, "built_spaces")):
            for kind, space, other in zip(SPACES, spaces, found, strict=True):
                if other != space:
                    self.close()
                    raise ConfigError(
                        f"{env_id}: environment {i} has the {kind} space {one_line(other)}, and the first one made has "
                        f"{one_line(space)}: the environments of a run need the same spaces"
                    )

    def reset(self, seeds: Sequence[int]) -> tuple[Any, dict[str, Any]]:
        """Restart all environments, with one seed each; observations and infos as in gymnasium."""
        result: tuple[Any, dict[str, Any]] = self._call(self._envs.reset, seed=list(seeds))
        return result

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Step all environments; observations, rewards, terminated, truncated and infos as in gymnasium."""
        result: tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]] = self._call(self._envs.step, actions)
        return result

    def render(self) -> np.ndarray:
        """A frame `[H, W, 3]` uint8 of the first environment."""
        frame: np.ndarray = self._envs.render()[0]
        return frame

    def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """The result of `method`. Raises `RunError` if a worker process has ended."""
        try:
            return method(*args, **options)
        except ENV_ERRORS as error:
            if not self._has_workers:
                raise self._failure(error) from error
            if not isinstance(error, EOFError | ConnectionError):
                raise
            self._lost_worker = True
            raise RunError(self._describe_exit_codes()) from error

    def _failure(self, error: BaseException) -> RunError:
        """Failure that names the environment of this process that raised `error`, and its method."""
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for i, env in enumerate(self._envs.envs):
                if frame.f_locals.get("self") is env:
                    return as_run_error(f"environment {i} of {self._id}: {frame.f_code.co_name}", error)
        return as_run_error(self._id, error)

    def _describe_exit_codes(self) -> str:
        """A message that names the worker processes that have ended, with their exit codes."""
        sentinels = {process.sentinel: i for i, process in enumerate(self._envs.processes)}
        ended = [sentinels[ready] for ready in multiprocessing.connection.wait(list(sentinels), timeout=1.0)]
        for i in ended:
            self._envs.processes[i].join()
        codes = [
            f"the process of environment {i} ended with exit code {self._envs.processes[i].exitcode}" for i in ended
        ]
        return "; ".join(codes) or "a process of the environments does not answer"

    def close(self) -> None:
        """Close every environment, and the worker processes if there are any."""
        if not self._lost_worker:
            try:
                self._envs.close()
                return
            except ENV_ERRORS as error:
                if not self._has_workers:
                    raise self._failure(error) from error
                if not isinstance(error, EOFError | ConnectionError):  # else a worker has ended unnoticed
                    raise
        for process in self._envs.processes:  # gymnasium's close would wait forever for the worker that has ended
            process.terminate()
        self._envs.closed = True


def get_spaces(env: Any) -> tuple[Any, ...]:
    """The spaces of one environment, of the kinds in `SPACES`: first those that it has itself, before its observations
    are flattened and its choices start at 0."""
    own = [f"own_{kind}_space" if env.has_wrapper_attr(f"own_{kind}_space") else f"{kind}_space" for kind in SPACES[:2]]
    return *(env.get_wrapper_attr(name) for name in own), env.observation_space, env.action_space


def _build_env(build: Callable[[], Any], maker: int, spaces: Sequence[Any], name: str) -> Any:
    """An environment, called `name`; `maker` is the id of the process that created the vector of environments.

    It keeps the result of `get_spaces` as `built_spaces` and shows `spaces`, since the error of gymnasium's vectors
    names no environment. In a worker process of `AsyncVectorEnv`, the errors `ENV_ERRORS` of the environment are
    `RunError`.
    """
    in_worker = os.getpid() != maker
    if in_worker:  # such a process leaves Ctrl-C to that process
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):  # drops the parent's handlers, if inherited
            signal.signal(number, signal.SIG_DFL)
    try:
        env = build()
    except ENV_ERRORS as error:
        failure = as_run_error(f"{name}: its constructor", error)
        # Multiprocessing prints the argument of SystemExit.
        raise SystemExit(f"ppo_bench: {failure}") if in_worker else failure from error
    found = get_spaces(env)
    if found != spaces:
        env = gymnasium.Wrapper(env)
        env.observation_space, env.action_space = spaces[2:]
    if in_worker:
        from ppo_bench.envs.env_errors import EnvErrors

        env = EnvErrors(env, name)
    env.built_spaces = found
    return env
