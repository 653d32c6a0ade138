"""EnvPool with the interface that CleanRL's scripts were written for."""

from __future__ import annotations

from typing import Any

import envpool
import gymnasium
import numpy as np

from ppo_bench.commands.equivalence.cleanrl.script import Script


class Pool(gymnasium.Env[Any, Any]):
    """A pool of environments that answers as before gymnasium's interface, with the supplied seeds."""

    def __init__(self, script: Script, task: str, **options: Any) -> None:
        script.used.update(("envpool", "environment seeds"))
        self._script, self._task = script, task
        self._options = {name: value for name, value in options.items() if name not in ("env_type", "seed")}
        self.begin()
        self.num_envs = script.num_envs
        self.action_space: Any = self._pool.action_space
        self.observation_space: Any = self._pool.observation_space

    def begin(self) -> None:
        """Make the environments."""
        self._pool = envpool.make_gymnasium(self._task, env_seed=self._script.env_seeds, **self._options)

    def reset(self, **_: Any) -> Any:
        """The first observations."""
        return self._pool.reset()[0]

    def step(self, action: Any) -> Any:
        """Observations, rewards, flags and infos."""
        obs, reward, terminated, truncated, info = self._pool.step(np.asarray(action))
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

    def close(self) -> None:
        """Close the environments."""
        self._pool.close()


def install(script: Script, pool: type[Pool] = Pool) -> None:
    """Have the script make pools of this class."""
    vars(envpool)["make"] = lambda task, **options: pool(script, task, **options)
