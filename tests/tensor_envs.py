"""Vector environments of tensors with same-step autoreset, as simulators on a GPU have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

Result = tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]


class Poles:
    """CartPole (Barto et al. 1983) with a time limit; ManiSkill's interface, and tensors that steps change in place."""

    single_observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float32)
    single_action_space = spaces.Discrete(2)

    def __init__(self, num_envs: int, limit_steps: int = 50, final_name: str | None = "final_observation") -> None:
        self.num_envs, self._limit_steps, self._final_name = num_envs, limit_steps, final_name
        self._state, self._steps = torch.zeros(num_envs, 4), torch.zeros(num_envs, dtype=torch.int64)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Tensor, dict[str, Any]]:
        self._generator = torch.Generator().manual_seed(seed or 0)
        self._state.copy_(self._first())
        self._steps.zero_()
        return self._state, {}

    def _first(self) -> Tensor:
        return torch.rand(self.num_envs, 4, generator=self._generator) * 0.1 - 0.05

    def step(self, actions: Tensor) -> Result:
        _, x_dot, theta, theta_dot = self._state.unbind(-1)
        force = torch.where(actions == 1, 10.0, -10.0)
        temp = (force + 0.05 * theta_dot**2 * theta.sin()) / 1.1
        theta_acc = (9.8 * theta.sin() - theta.cos() * temp) / (0.5 * (4.0 / 3.0 - 0.1 * theta.cos() ** 2 / 1.1))
        x_acc = temp - 0.05 * theta_acc * theta.cos() / 1.1
        change = torch.stack([x_dot, x_acc, theta_dot, theta_acc], -1)
        self._state += 0.02 * change
        self._steps += 1
        terminated = (self._state[:, 0].abs() > 2.4) | (self._state[:, 2].abs() > 0.2095)
        truncated = self._steps >= self._limit_steps
        ends, info = terminated | truncated, dict[str, Any]()
        if self._final_name is not None and ends.any():
            info[self._final_name] = self._state.clone()
        self._state[ends] = self._first()[ends]
        self._steps[ends] = 0
        return self._state, torch.ones(self.num_envs), terminated, truncated, info


class TensorScenes:
    """Random observations and rewards; episodes end at random, for good and by time limits.

    All that was observed, done and rewarded is kept. Where an episode does not end, final observations are NaN.
    """

    def __init__(self, num_envs: int, actions: spaces.Space | None = None, size: int = 5) -> None:
        self.num_envs, self.single_action_space = num_envs, actions or spaces.Discrete(3)
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self._shape = (num_envs, size)

    def reset(self, seed: int) -> tuple[Tensor, dict[str, Any]]:
        self._generator = torch.Generator().manual_seed(seed)
        self.obs, self.final, self.rewards = [self._draw(*self._shape)], list[Tensor](), list[Tensor]()
        self.ends, self.actions = list[tuple[Tensor, Tensor]](), list[Tensor]()
        return self.obs[0].clone(), {}

    def step(self, actions: Tensor) -> Result:
        self.actions.append(actions.clone())
        chance, by_limit = torch.rand(2, self.num_envs, generator=self._generator)
        terminated, truncated = chance < 0.1, (by_limit < 0.2)
        self.obs.append(self._draw(*self._shape))
        ends = terminated | truncated
        self.final.append(torch.where(ends[:, None], self._draw(*self._shape), torch.nan))
        self.rewards.append(self._draw(self.num_envs))
        self.ends.append((terminated, truncated))
        info = {"final_obs": self.final[-1].clone()} if ends.any() else {}
        return self.obs[-1].clone(), self.rewards[-1].clone(), terminated, truncated, info

    def _draw(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator)


def text(num_envs: int) -> str:
    """A factory that makes no environments."""
    return "text"
