"""The package procgen, whose games EnvPool plays, with gym 0.23.1's wrappers of vectors."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_bench.commands.equivalence.cleanrl.envpool_compat import Pool
from ppo_bench.commands.equivalence.cleanrl.gym_compat import JointWrappers
from ppo_bench.commands.equivalence.cleanrl.script import Script, install_module


def install(script: Script) -> None:
    """Put a module `procgen` and the wrappers in place."""
    install_module("procgen", ProcgenEnv=lambda **options: Games(script, **options))
    vars(gymnasium.wrappers)["RecordEpisodeStatistics"] = lambda env: env


class Games(Pool):
    """EnvPool's games with the interface of procgen's."""

    def __init__(
        self, script: Script, num_envs: int, env_name: str, num_levels: int, start_level: int, distribution_mode: str
    ) -> None:
        assert (num_levels, start_level, distribution_mode) == (0, 0, "easy")
        script.used.update(("procgen", "gym 0.23"))
        super().__init__(script, f"{env_name.capitalize()}Easy-v0", num_envs=num_envs)
        self.action_space = spaces.Discrete(int(self.action_space.n))
        self.observation_space = spaces.Dict(rgb=spaces.Box(0, 255, (64, 64, 3), np.uint8))
        self._wrappers = JointWrappers(script)
        self._wrappers.capture()

    def reset(self, **_: Any) -> Any:
        """The first observations."""
        return self._wrappers.transform_observations({"rgb": super().reset().transpose(0, 2, 3, 1)})

    def step(self, action: Any) -> Any:
        """Observations, rewards, flags and infos."""
        obs, rewards, done, _ = super().step(action)
        obs = self._wrappers.transform_observations({"rgb": obs.transpose(0, 2, 3, 1)})
        return obs, self._wrappers.transform_rewards(rewards), done, [{} for _ in done]
