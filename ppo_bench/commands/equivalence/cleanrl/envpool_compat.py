"""EnvPool with the interface that CleanRL's scripts were written for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import envpool
import gymnasium
import numpy as np

from ppo_bench.commands.equivalence.cleanrl.script import Script


class Pool:
    """A pool of environments that answers as before gymnasium's interface, with the supplied seeds."""

    def __init__(self, script: Script, task: str, options: dict[str, Any]) -> None:
        script.used.update(("envpool", "environment seeds"))
        self._script, self._task = script, task
        self._options = {name: value for name, value in options.items() if name not in ("env_type", "seed")}
        self.begin()
        self.num_envs = options["num_envs"]
        self.action_space, self.observation_space = self._pool.action_space, self._pool.observation_space

    def begin(self) -> None:
        """Make the environments."""
        self._pool = envpool.make_gymnasium(self._task, env_seed=self._script.env_seeds, **self._options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_pool"], name)

    def reset(self, **_: Any) -> Any:
        """The first observations."""
        return self._pool.reset()[0]

    def step(self, actions: Any) -> Any:
        """Observations, rewards, flags and infos."""
        obs, reward, terminated, truncated, info = self._pool.step(np.asarray(actions))
        done = terminated | truncated
        self._script.note_step(done)
        return obs, reward, done, info | {"terminated": terminated, "TimeLimit.truncated": truncated}

    def xla(self) -> Any:
        """The pool's handle and functions of JAX."""
        handle, recv, send, own_step = self._pool.xla()

        def step(handle: Any, actions: Any) -> Any:
            handle, (obs, reward, terminated, truncated, info) = own_step(handle, actions.astype(np.int32))
            kept = {"reward": info["reward"], "terminated": info["terminated"], "TimeLimit.truncated": truncated}
            return handle, (obs, reward, terminated | truncated, kept)

        return handle, recv, send, step


class Wrapper:
    """The base of a script's wrapper, for a pool, which gymnasium's own would refuse."""

    def __init__(self, env: Any) -> None:
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["env"], name)

    def reset(self, **options: Any) -> Any:
        """See `Pool.reset`."""
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """See `Pool.step`."""
        return self.env.step(action)


def install(script: Script, kind: Callable[[Script, str, dict[str, Any]], Pool] = Pool) -> None:
    """Have the script make pools of this `kind`."""
    envpool.make = lambda task, **options: kind(script, task, options)  # type: ignore[assignment]
    gymnasium.Wrapper = Wrapper  # type: ignore[misc,assignment]
