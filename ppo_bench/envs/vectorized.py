"""Vectorisation of gymnasium environments by `SyncVectorEnv` (this process) or `AsyncVectorEnv` (a process each)."""

from __future__ import annotations

import functools
import os
import signal
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from ppo_bench.common.errors import ConfigError, RunError, as_run_error, exit_as_error, one_line
from ppo_bench.common.values import within
from ppo_bench.envs.base import Backend

VECTORIZATIONS = within(lambda value: value in ("sync", "async"), "choose sync or async")


def without_worker_processes(backend: Backend) -> Backend:
    """The backend without processes of its own, which cannot be started safely once a training has threads."""
    return replace(backend, vectorization="sync") if hasattr(backend, "vectorization") else backend  # type: ignore[type-var]


class GymVectorEnv:
    """N environments that `build` makes, with next-step autoreset."""

    def __init__(self, env_id: str, build: Callable[[], Any], num_envs: int, vectorization: str) -> None:
        """Raises `ConfigError` if the environments have different spaces."""
        # What gymnasium says of errors in worker processes in addition to their traceback.
        known = r"(?s).*(Received the following error|Raising the last exception)"
        warnings.filterwarnings("ignore", known, module="gymnasium")
        self._id, self._lost_worker = env_id, False
        self._has_workers = vectorization == "async"
        kind = AsyncVectorEnv if self._has_workers else SyncVectorEnv
        each = [functools.partial(_build_env, build, os.getpid())] * num_envs
        try:
            with exit_as_error(env_id):
                self._envs: Any = kind(each, copy=False, autoreset_mode=AutoresetMode.NEXT_STEP)
        except (EOFError, ConnectionError) as error:
            if not self._has_workers:
                raise as_run_error(env_id, error) from error
            raise RunError(f"a worker process of {env_id} has ended as it began") from error
        except RuntimeError as error:
            raise ConfigError(f"{env_id}: {one_line(error)}") from error
        except (ConfigError, RunError):
            raise
        except Exception as error:
            raise as_run_error(env_id, error) from error

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
        """The result of `method`. Raises `RunError` if an environment raises, or a worker process has ended."""
        try:
            return method(*args, **options)
        except (ConfigError, RunError):
            raise
        except (Exception, SystemExit) as error:
            if not self._has_workers:
                raise as_run_error(self._id, error) from error
            if not isinstance(error, EOFError | ConnectionError):
                raise RunError(f"{self._id} raises {type(error).__name__}: {one_line(error)}") from error
            self._lost_worker = True
            raise RunError(f"a worker process of {self._id} has ended ({type(error).__name__})") from error

    def close(self) -> None:
        """Close every environment, and the worker processes if there are any."""
        if not self._lost_worker:
            try:
                self._envs.close()
                return
            except (EOFError, ConnectionError):  # a worker has ended unnoticed
                if not self._has_workers:
                    raise
        for process in self._envs.processes:  # gymnasium's close would wait forever for the worker that has ended
            process.terminate()
        self._envs.closed = True


def _build_env(build: Callable[[], Any], maker: int) -> Any:
    """An environment; `maker` is the id of the process that created the vector of environments.

    Another process is a worker, which leaves Ctrl-C to that process and drops its handlers, if inherited.
    """
    if os.getpid() != maker:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_DFL)
    return build()
