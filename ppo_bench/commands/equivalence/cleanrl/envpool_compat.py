"""EnvPool with the interfaces that CleanRL's scripts were written for: EnvPool's of old, and procgen's."""

from __future__ import annotations

from typing import Any

import envpool
import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_bench.commands.equivalence.cleanrl.gym_compat import JointWrappers
from ppo_bench.commands.equivalence.cleanrl.script import Script, install_module


class Pool(gymnasium.Env[Any, Any]):
    """A pool of environments that answers as before gymnasium's interface, with the supplied seeds."""

    def __init__(self, script: Script, task: str, **options: Any) -> None:
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


class ProcgenPool(Pool):
    """EnvPool's games with the interface of procgen's, and gym 0.23.1's wrappers of vectors of environments."""

    def __init__(
        self, script: Script, num_envs: int, env_name: str, num_levels: int, start_level: int, distribution_mode: str
    ) -> None:
        assert (num_levels, start_level, distribution_mode) == (0, 0, "easy")
        super().__init__(script, f"{env_name.capitalize()}Easy-v0", num_envs=num_envs)
        self.action_space = spaces.Discrete(int(self.action_space.n))
        self.observation_space = spaces.Dict(rgb=spaces.Box(0, 255, (64, 64, 3), np.uint8))
        self._wrappers = JointWrappers(script)

    def reset(self, **_: Any) -> Any:
        """The first observations."""
        return self._wrappers.transform_observations({"rgb": super().reset().transpose(0, 2, 3, 1)})

    def step(self, action: Any) -> Any:
        """Observations, rewards, flags and infos."""
        obs, rewards, done, _ = super().step(action)
        obs = self._wrappers.transform_observations({"rgb": obs.transpose(0, 2, 3, 1)})
        return obs, self._wrappers.transform_rewards(rewards), done, [{} for _ in done]


def install(script: Script, pool: type[Pool] = Pool) -> None:
    """Have the script make pools of this class, and its module `procgen` make EnvPool's games."""
    vars(envpool)["make"] = lambda task, **options: pool(script, task, **options)
    install_module("procgen", ProcgenEnv=lambda **options: ProcgenPool(script, **options))
    vars(gymnasium.wrappers)["RecordEpisodeStatistics"] = lambda env: env
