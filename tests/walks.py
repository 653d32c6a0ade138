"""A walk that keeps the contract of environments, and walks that each break one rule of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import EnvStep, PolicyInput


class Walk:
    """Keeps the contract: positions pushed by the actions; half of the episodes end after 4 steps; the limit is 6."""

    limit = 6
    masks_actions = False

    def __init__(self) -> None:
        self.num_envs = 3
        self.observation_space = spaces.Box(-100.0, 100.0, (1,), np.float32)
        self.action_space = spaces.Discrete(2)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.rngs = [np.random.default_rng(seed) for seed in seeds]
        self.position = self.draw()
        self.short = self.position < 0.5
        self.time = np.zeros(self.num_envs, int)
        self.done = np.zeros(self.num_envs, bool)
        return PolicyInput(self.obs())

    def step(self, actions: np.ndarray) -> EnvStep:
        self.resets = self.done
        push = self.draw()
        self.position = np.where(self.resets, push, self.position + np.where(actions == 1, push, -push))
        self.time = np.where(self.resets, 0, self.time + 1)
        self.short = np.where(self.resets, push < 0.5, self.short)
        terminated, truncated = self.short & (self.time == self.limit - 2), self.time == self.limit
        self.done = terminated | truncated
        reward = np.where(self.resets, 0, 2).astype(np.float32)
        return EnvStep(self.obs(), reward, terminated, truncated, self.done, reward)

    def draw(self) -> np.ndarray:
        return np.array([rng.random() for rng in self.rngs], np.float32)

    def obs(self) -> np.ndarray:
        return self.position[:, None]

    def close(self) -> None:
        pass


class IgnoresItsSeed(Walk):
    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        return super().reset(range(self.num_envs))


class SeedsItselfFromWhatCameBefore(Walk):
    plays = 0

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.plays += 1
        return super().reset([seed + self.plays for seed in seeds])


class AllEnvironmentsAreOne(Walk):
    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        return super().reset([seeds[0]] * self.num_envs)

    def step(self, actions: np.ndarray) -> EnvStep:
        return super().step(np.full(self.num_envs, actions[0]))._replace(obs=np.repeat(self.obs()[:1], 3, 0))


class TheFirstPushesTheLast(Walk):
    def step(self, actions: np.ndarray) -> EnvStep:
        step = super().step(actions)
        self.position[-1] += np.float32(0.01) * actions[0] * ~(self.resets[0] | self.resets[-1])
        return step._replace(obs=self.obs())


class ObservationsAreDouble(Walk):
    def obs(self) -> np.ndarray:
        return super().obs().astype(np.float64)


class NeverEnds(Walk):
    def step(self, actions: np.ndarray) -> EnvStep:
        self.time = np.zeros(self.num_envs, int)
        return super().step(actions)


class HeedsActionsOfResets(Walk):
    def step(self, actions: np.ndarray) -> EnvStep:
        step = super().step(actions)
        self.position = self.position + np.where(self.resets, actions, 0).astype(np.float32)
        return step._replace(obs=self.obs())


class ShowsTheNextStartAtTheEnd(Walk):
    def step(self, actions: np.ndarray) -> EnvStep:
        end = super().step(actions)
        starts = np.where(self.done, 0, self.position).astype(np.float32)
        self.position = np.where(self.resets, 0, starts).astype(np.float32)
        return end._replace(obs=self.obs())


PAID = ("reward", "raw_reward")
CHANGES: dict[str, Callable[[Walk, EnvStep], dict[str, np.ndarray]]] = {
    "observations are nan": lambda w, s: {"obs": np.where(w.time[:, None] == 2, np.float32(np.nan), s.obs)},
    "rewards are infinite": lambda w, s: dict.fromkeys(PAID, np.where(w.time == 2, np.float32(np.inf), s.reward)),
    "rewards are double": lambda w, s: {"reward": s.reward.astype(np.float64)},
    "rewards are scaled": lambda w, s: {"reward": s.reward * np.float32(0.1)},
    "flags are integers": lambda w, s: {"episode_over": s.episode_over.astype(np.int64)},
    "pays for resets": lambda w, s: dict.fromkeys(PAID, np.full(w.num_envs, 2, np.float32)),
    "ends again at once": lambda w, s: {name: getattr(s, name) | w.resets for name in ("terminated", "episode_over")},
    "is over without being done": lambda w, s: {"episode_over": s.episode_over | (w.time == 2)},
    "is truncated without being over": lambda w, s: {"episode_over": s.terminated},
}


class Changed(Walk):
    """Shows something else than has happened in a step."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self._change = CHANGES[how]

    def step(self, actions: np.ndarray) -> EnvStep:
        step = super().step(actions)
        return step._replace(**self._change(self, step))
