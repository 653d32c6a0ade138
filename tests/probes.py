"""Tiny environments with known values and policies, under the next-step contract.

Each isolates one thing that learning needs; after the probe environments of rejax and of Andy Jones, "Debugging RL,
Without the Agonizing Pain" (2021).
"""

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
        self.rng = np.random.default_rng(seeds[0])
        self.step_in_episode = np.zeros(self.num_envs, int)
        self.done = np.zeros(self.num_envs, bool)
        self.signs = self.rng.choice([-1.0, 1.0], self.num_envs)
        return PolicyInput(self._obs())

    def step(self, actions: np.ndarray) -> EnvStep:
        reset = self.done
        rewards = np.where(reset, 0.0, self.reward(actions)).astype(np.float32)
        self.step_in_episode = np.where(reset, 0, self.step_in_episode + 1)
        self.signs = self.rng.choice([-1.0, 1.0], self.num_envs)
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


class Discounting(Probe):
    """Two steps, reward 1 after the second: V(0) = gamma, V(1) = 1."""

    length = 2

    def observation(self) -> np.ndarray:
        return np.minimum(self.step_in_episode, 1)

    def reward(self, actions: np.ndarray) -> np.ndarray:
        return (self.step_in_episode == 1).astype(float)


class ActionOfObservation(Probe):
    """One step, reward 1 if action 1 meets observation 1 or action 0 meets -1, else -1: match it, V = 1."""

    def observation(self) -> np.ndarray:
        return self.signs

    def reward(self, actions: np.ndarray) -> np.ndarray:
        return np.where((actions == 1) == (self.signs > 0), 1.0, -1.0)


class Target(Probe):
    """One step, reward -(a - 0.5)^2 for each of two continuous actions: the mean goes to 0.5."""

    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reward(self, actions: np.ndarray) -> np.ndarray:
        return -np.square(actions - 0.5).sum(-1)


class Endless(Probe):
    """Reward 1 for ever under a time limit of 5 steps: V = 1 / (1 - gamma), if the limit is not taken for an end."""

    length = 5
    ends_by_truncation = True
