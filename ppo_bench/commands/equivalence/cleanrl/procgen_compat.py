"""Interfaces of ppo_procgen.py: the package procgen, whose games EnvPool plays, and gym 0.23.1's vector wrappers."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from ppo_bench.commands.equivalence.cleanrl.envpool_compat import Pool
from ppo_bench.commands.equivalence.cleanrl.gym_compat import VectorRewards
from ppo_bench.commands.equivalence.cleanrl.script import Script


def install(script: Script) -> None:
    """Put modules `procgen` and `gym` in place."""
    procgen, gym, wrappers = (types.ModuleType(name) for name in ("procgen", "gym", "gym.wrappers"))
    gym.spaces, gym.wrappers = spaces, wrappers  # type: ignore[attr-defined]
    procgen.ProcgenEnv = lambda **options: Games(script, **options)  # type: ignore[attr-defined]
    own: dict[str, Any] = {
        "TransformObservation": lambda env, function: Wrapped(env, of_observations=function),
        "TransformReward": lambda env, function: Wrapped(env, of_rewards=function),
        "RecordEpisodeStatistics": lambda env: env,
        "NormalizeReward": lambda env, gamma: NormalizedRewards(env, gamma, script),
    }
    for name, wrapper in own.items():
        setattr(wrappers, name, wrapper)
    sys.modules.update({"procgen": procgen, "gym": gym, "gym.wrappers": wrappers})


class Games:
    """EnvPool's games with the interface of procgen's, and the supplied seeds."""

    def __init__(
        self, script: Script, num_envs: int, env_name: str, num_levels: int, start_level: int, distribution_mode: str
    ) -> None:
        assert (num_levels, start_level, distribution_mode) == (0, 0, "easy")
        script.used.update(("procgen", "gym 0.23"))
        self._pool = Pool(script, f"{env_name.capitalize()}Easy-v0", {"num_envs": num_envs})
        self.num_envs = num_envs
        self.action_space = spaces.Discrete(int(self._pool.action_space.n))
        self.observation_space = spaces.Dict(rgb=spaces.Box(0, 255, (64, 64, 3), np.uint8))

    def reset(self) -> dict[str, np.ndarray]:
        """The first observations."""
        return {"rgb": self._pool.reset().transpose(0, 2, 3, 1)}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Observations, rewards, flags and infos."""
        obs, rewards, done, _ = self._pool.step(actions)
        return {"rgb": obs.transpose(0, 2, 3, 1)}, rewards, done, [{} for _ in done]

    def close(self) -> None:
        """Close the games."""
        self._pool.close()


def unchanged(x: Any) -> Any:
    """`x`."""
    return x


class Wrapped:
    """A vector of environments with functions of its observations and rewards."""

    def __init__(
        self, env: Any, of_observations: Callable[[Any], Any] = unchanged, of_rewards: Callable[[Any], Any] = unchanged
    ) -> None:
        self._env, self._of_observations, self._of_rewards = env, of_observations, of_rewards

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_env"], name)

    def reset(self) -> Any:
        """The first observations."""
        return self._of_observations(self._env.reset())

    def step(self, actions: Any) -> Any:
        """Observations, rewards, flags and infos."""
        obs, rewards, done, infos = self._env.step(actions)
        return self._of_observations(obs), self._of_rewards(rewards), done, infos


class NormalizedRewards(Wrapped):
    """A vector of environments with normalised rewards."""

    def __init__(self, env: Any, gamma: float, script: Script) -> None:
        super().__init__(env)
        self._rewards = VectorRewards(gamma, script)

    def step(self, actions: Any) -> Any:
        """Observations, normalised rewards, flags and infos."""
        obs, rewards, done, infos = self._env.step(actions)
        return obs, self._rewards.normalized(rewards, done), done, infos
