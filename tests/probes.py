"""Tiny environments under the next-step contract, after Andy Jones, "Debugging RL, Without the Agonizing Pain"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import EnvStep, PolicyInput


class Probe:
    """Episodes of `length` steps; observation `observation()`, reward `reward(actions)`, both `[num_envs]`."""

    action_space: spaces.Space = spaces.Discrete(2)
    masks_actions = False
    length = 1
    ends_by_truncation = False

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.step_in_episode = np.zeros(self.num_envs, int)
        self.done = np.zeros(self.num_envs, bool)
        return PolicyInput(self._obs())

    def step(self, actions: np.ndarray) -> EnvStep:
        reset = self.done
        rewards = np.where(reset, 0.0, self.reward(actions)).astype(np.float32)
        self.step_in_episode = np.where(reset, 0, self.step_in_episode + 1)
        self.done = self.step_in_episode == self.length
        never = np.zeros_like(self.done)
        terminated, truncated = (never, self.done) if self.ends_by_truncation else (self.done, never)
        return EnvStep(self._obs(), rewards, terminated, truncated, self.done, rewards)

    def _obs(self) -> np.ndarray:
        return self.observation().astype(np.float32)[:, None]

    def observation(self) -> np.ndarray:
        return np.zeros(self.num_envs)

    def reward(self, actions: np.ndarray) -> np.ndarray:
        return np.ones(self.num_envs)

    def close(self) -> None:
        pass


class Endless(Probe):
    """Reward 1 for ever under a time limit of 5 steps: V = 1 / (1 - gamma), if the limit is not taken for an end."""

    length = 5
    ends_by_truncation = True
