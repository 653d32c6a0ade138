"""Environments for tests of runners: random scenes, and one that keeps what passed through it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import Seen, Step, VectorEnv


class Recorder:
    """A `VectorEnv` that keeps what passed through it."""

    def __init__(self, env: VectorEnv) -> None:
        self.env, self.masks_actions = env, env.masks_actions
        self.num_envs, self.observation_space, self.action_space = env.num_envs, env.observation_space, env.action_space
        self.obs: list[np.ndarray] = []
        self.steps: list[Step] = []
        self.actions: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> Seen:
        seen = self.env.reset(seeds).map(np.copy)
        self.obs.append(seen.obs)
        return seen

    def step(self, actions: np.ndarray) -> Step:
        step = self.env.step(actions).map(np.copy)
        self.actions.append(np.array(actions))
        self.steps.append(step)
        self.obs.append(step.obs)
        return step

    def close(self) -> None:
        self.env.close()


class RandomScenes:
    """Random observations and rewards, with terminations, truncations and their resets at random."""

    masks_actions = False

    def __init__(self, num_envs: int, pixels: bool, continuous: bool) -> None:
        self.num_envs = num_envs
        self.pixels = pixels
        shape = (4, 44, 44) if pixels else (5,)
        self.observation_space = (
            spaces.Box(0, 255, shape, np.uint8) if pixels else spaces.Box(-np.inf, np.inf, shape, np.float32)
        )
        self.action_space: spaces.Box | spaces.Discrete = (
            spaces.Box(-np.inf, np.inf, (2,), np.float32) if continuous else spaces.Discrete(3)
        )

    def reset(self, seeds: Sequence[int]) -> Seen:
        self.rng = np.random.default_rng(list(seeds))
        self.done = np.zeros(self.num_envs, bool)
        return Seen(self._obs())

    def step(self, actions: np.ndarray) -> Step:
        rewards = np.where(self.done, 0.0, self.rng.normal(size=self.num_envs)).astype(np.float32)
        terminated = (self.rng.random(self.num_envs) < 0.15) & ~self.done
        truncated = (self.rng.random(self.num_envs) < 0.15) & ~self.done & ~terminated
        self.done = terminated | truncated
        return Step(self._obs(), rewards, terminated, truncated, self.done, rewards)

    def _obs(self) -> np.ndarray:
        shape = (self.num_envs, *self.observation_space.shape)
        if self.pixels:
            return self.rng.integers(0, 256, shape, np.uint8)
        return self.rng.normal(size=shape).astype(np.float32)

    def close(self) -> None:
        pass
