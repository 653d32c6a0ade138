"""Environments for tests of runners: random scenes, and one that records its actions and steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import EnvStep, PolicyInput, VectorEnv


class Recorder:
    """A `VectorEnv` that keeps what passed through it."""

    def __init__(self, env: VectorEnv) -> None:
        self.env, self.masks_actions = env, env.masks_actions
        self.num_envs, self.observation_space, self.action_space = env.num_envs, env.observation_space, env.action_space
        self.obs: list[np.ndarray] = []
        self.steps: list[EnvStep] = []
        self.actions: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        seen = self.env.reset(seeds).map(np.copy)
        self.obs.append(seen.obs)
        return seen

    def step(self, actions: np.ndarray) -> EnvStep:
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

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.rng = np.random.default_rng(list(seeds))
        self.done = np.zeros(self.num_envs, bool)
        return PolicyInput(self._obs())

    def step(self, actions: np.ndarray) -> EnvStep:
        rewards = np.where(self.done, 0.0, self.rng.normal(size=self.num_envs)).astype(np.float32)
        terminated = (self.rng.random(self.num_envs) < 0.15) & ~self.done
        truncated = (self.rng.random(self.num_envs) < 0.15) & ~self.done & ~terminated
        self.done = terminated | truncated
        return EnvStep(self._obs(), rewards, terminated, truncated, self.done, rewards)

    def _obs(self) -> np.ndarray:
        shape = (self.num_envs, *self.observation_space.shape)
        if self.pixels:
            return self.rng.integers(0, 256, shape, np.uint8)
        return self.rng.normal(size=shape).astype(np.float32)

    def close(self) -> None:
        pass


class Endings:
    """Four environments of random scenes, with every way to end in the middle and at both edges of rollouts.

    Rollouts are of `num_steps`. All that was seen, done and given is kept. With `rules` some choices are illegal, and
    some rows pass.
    """

    num_envs = 4

    def __init__(self, observations: spaces.Box, actions: spaces.Space, num_steps: int, rules: bool = False) -> None:
        self.observation_space, self.action_space, self.num_steps = observations, actions, num_steps
        self.masks_actions = rules
        self.policy_inputs: list[PolicyInput] = []
        self.steps: list[EnvStep] = []
        self.actions: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.rng, self.resets = np.random.default_rng(list(seeds)), np.zeros(4, bool)
        self.policy_inputs, self.steps, self.actions = [], [], []
        return self._see()

    def step(self, actions: np.ndarray) -> EnvStep:
        kinds, ends = self.rng.integers(4, size=4), self.rng.random(4) < 0.2
        place = len(self.steps) % self.num_steps
        if place == 0:
            ends[3], kinds[3] = True, 1
        elif place == self.num_steps - 2:  # the fourth environment begins anew with the last step
            ends = np.arange(4) == 3
        elif place == self.num_steps - 1:  # the others end with it: for good, by a time limit, by a lost life
            ends, kinds = np.arange(4) < 3, np.arange(4)
        ends = ends & ~self.resets
        rewards = np.where(self.resets, 0.0, self.rng.normal(size=4)).astype(np.float32)
        # The kinds: 0 for good, 1 by a time limit, 2 by a lost life, 3 for good at the time limit.
        terminated, truncated = ends & (kinds != 1), ends & np.isin(kinds, (1, 3))
        step = EnvStep(self._see().obs, rewards, terminated, truncated, ends & (kinds != 2), rewards)
        self.resets = ends
        self.steps.append(step)
        self.actions.append(np.array(actions))
        return step._replace(**self._rules())

    def _see(self) -> PolicyInput:
        """New observations, kept with the rules of this moment, whether or not those are told."""
        shape, kind = (4, *self.observation_space.shape), self.observation_space.dtype
        if kind == np.uint8:
            obs = self.rng.integers(0, 256, shape, np.uint8)
        elif kind == np.bool_:
            obs = self.rng.random(shape) < 0.3
        else:
            obs = self.rng.normal(size=shape).astype(np.float32)
        policy_mask, action_mask = np.ones(4, bool), np.ones((4, sum(self._choices)), bool)
        if self.masks_actions:
            policy_mask = self.rng.random(4) < 0.7
            illegal = [np.arange(n) == self.rng.integers(n, size=(4, 1)) for n in self._choices]
            action_mask = ~np.concatenate(illegal, 1) | ~policy_mask[:, None]
        self.policy_inputs.append(PolicyInput(obs, policy_mask, action_mask))
        return PolicyInput(obs, **self._rules())

    def _rules(self) -> dict[str, np.ndarray]:
        return (
            {"policy_mask": self.policy_inputs[-1].policy_mask, "action_mask": self.policy_inputs[-1].action_mask}
            if self.masks_actions
            else {}
        )

    @property
    def _choices(self) -> list[int]:
        if isinstance(self.action_space, spaces.Discrete):
            return [int(self.action_space.n)]
        if isinstance(self.action_space, spaces.MultiDiscrete):
            return [int(n) for n in self.action_space.nvec]
        return [2] * math.prod(self.action_space.shape or ())

    def close(self) -> None:
        pass
