"""Random network distillation as its paper states it, in plain PyTorch and float64 (Burda et al. 2018)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ppo_bench.mathematics import noise
from tests.transcribed_layers import Flat, Policy
from tests.transcription import Ppo

EXT_COEF, INT_COEF, INT_GAMMA, PROPORTION, FEATURES = 2.0, 0.7, 0.9, 0.4, 10
OVERRIDES = (
    *(f"algorithm.ext_coef={EXT_COEF}", f"algorithm.int_coef={INT_COEF}", f"algorithm.int_gamma={INT_GAMMA}"),
    *(f"algorithm.update_proportion={PROPORTION}", f"algorithm.features={FEATURES}"),
    "algorithm.warm_up_iterations=0",
)


def target_for(space: spaces.Box) -> nn.Sequential:
    """Of images the last frame."""
    if space.dtype != np.uint8:
        return nn.Sequential(nn.Linear(math.prod(space.shape), FEATURES), nn.LeakyReLU(), nn.Linear(FEATURES, FEATURES))
    leaky = [nn.Conv2d(1, 32, 8, 4), nn.LeakyReLU(), nn.Conv2d(32, 64, 4, 2), nn.LeakyReLU(), nn.Conv2d(64, 64, 3, 1)]
    images = nn.Sequential(*leaky, nn.LeakyReLU(), Flat())
    size = images(torch.zeros(1, 1, *space.shape[1:])).shape[1]
    return nn.Sequential(*images, nn.Linear(size, FEATURES))


def predictor_for(space: spaces.Box) -> nn.Sequential:
    return nn.Sequential(
        *target_for(space),
        *(nn.ReLU(), nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES)),
    )


def named(part: str, module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    layers = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    for index, layer in enumerate(layers):
        yield from ((f"{part}.{index}.{name}", array) for name, array in layer.named_parameters())


class Curious(Policy):
    """A policy with two values, and a predictor that learns with it."""

    def __init__(self, policy: Policy, space: spaces.Box) -> None:
        nn.Module.__init__(self)
        *_, last = (m for m in policy.critic.modules() if isinstance(m, nn.Linear))
        both = nn.Linear(last.in_features, 2)
        if last is policy.critic:
            policy.critic = both
        else:
            assert isinstance(policy.critic, nn.Sequential)
            policy.critic[-1] = both
        self.policy, self.predictor = policy.double(), predictor_for(space).double()
        self.target = target_for(space).double().requires_grad_(False)
        self.learns_from_sequences, self.log_std = policy.learns_from_sequences, policy.log_std

    def forward(self, obs: Tensor, memory: Tensor, episode_start: Tensor) -> Any:
        return self.policy(obs, memory, episode_start)

    def memory_of(self, num_envs: int) -> Tensor:
        return self.policy.memory_of(num_envs)

    def named_arrays(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.policy.named_arrays()
        yield from named("predictor", self.predictor)

    def freeze(self, frozen: dict[str, np.ndarray]) -> Self:
        for name, parameter in named("target", self.target):
            array = torch.from_numpy(frozen[name]).double()
            parameter.data = array.permute(0, 3, 1, 2).contiguous() if array.ndim == 4 else array
        return self


class Rnd(Ppo):
    """The reference of conf/algorithm/rnd.yaml."""

    policy: Curious
    all_inputs: tuple[np.ndarray, ...] = ()
    all_sums: tuple[np.ndarray, ...] = ()
    running: np.ndarray

    @classmethod
    def around(cls, policy: Policy, space: spaces.Box, frozen: dict[str, np.ndarray]) -> Policy:
        return Curious(policy, space).freeze(frozen)

    def led_to(self, first: int) -> np.ndarray:
        """What the steps of a rollout led to, `[T, N, ...]`."""
        return np.stack(
            [policy_input.obs for policy_input in self.scenes.policy_inputs[first + 1 : first + 1 + self.hp.num_steps]]
        )

    # --- After a rollout --------------------------------------------------------------------------------------------

    def advantages(self, rewards: np.ndarray, values: np.ndarray, first: int) -> np.ndarray:
        extrinsic, intrinsic = values[..., 0], values[..., 1]
        done = np.stack([step.terminated | step.truncated for step in self.scenes.steps[: first + len(rewards)]])
        value_mask = self.steps_that_count(done)[first:]
        if not self.hp.mask_resets:
            value_mask = np.ones_like(value_mask)
        novelty = self.novelty(first, value_mask)
        if first == 0:
            self.running = np.zeros(rewards.shape[1])
        sums = []
        for t, env in np.ndindex(*rewards.shape):
            if value_mask[t, env]:  # across the ends of episodes
                self.running[env] = INT_GAMMA * self.running[env] + novelty[t, env]
                sums.append(self.running[env])
        self.all_sums = (*self.all_sums, np.array(sums))
        novelty = novelty / np.sqrt(moments(np.concatenate(self.all_sums))[1])

        own = super().advantages(rewards, extrinsic, first)
        other, self.intrinsic_returns = np.zeros_like(own), torch.zeros(own.shape, dtype=torch.float64)
        for env in range(own.shape[1]):
            rows = [t for t in range(len(own)) if value_mask[t, env]]  # the stream as if there had been no resets
            following, advantage = intrinsic[-1, env], 0.0
            for t in reversed(rows):
                error = novelty[t, env] + INT_GAMMA * following - intrinsic[t, env]
                advantage = error + INT_GAMMA * self.hp.gae_lambda * advantage
                following, other[t, env] = intrinsic[t, env], advantage
                self.intrinsic_returns[t, env] = advantage + intrinsic[t, env]
        self.extrinsic_returns = torch.from_numpy(own + extrinsic[:-1])
        self.draw(first)
        return EXT_COEF * own + INT_COEF * other

    def novelty(self, first: int, value_mask: np.ndarray) -> np.ndarray:
        inputs = self.led_to(first).astype(np.float64)
        if inputs.ndim == 5:
            inputs = inputs[:, :, -1:]  # the last frame
        self.all_inputs = (*self.all_inputs, inputs[value_mask])
        mean, var = moments(np.concatenate(self.all_inputs))
        self.inputs = torch.from_numpy(((inputs - mean) / np.sqrt(var)).clip(-5, 5))
        with torch.no_grad():
            rows = self.inputs.flatten(0, 1)
            wide = (self.policy.target(rows) - self.policy.predictor(rows)) ** 2
        return wide.sum(-1).view(value_mask.shape).numpy() / 2

    def draw(self, first: int) -> None:
        """A number of each transition in each epoch."""
        steps, envs = np.arange(self.hp.num_steps, dtype=np.int32), np.arange(self.scenes.num_envs, dtype=np.int32)
        key = np.array([self.seed], np.int32), np.array([self.iteration + 1], np.int32)
        epochs = np.arange(self.hp.update_epochs, dtype=np.int32)
        words, _ = noise.action_words(np, *key, steps, envs, epochs, noise.Stream.TRANSITIONS)
        self.draws = noise.uniform(np, words, np.float64)

    # --- An update --------------------------------------------------------------------------------------------------

    def descend(self, batch: Any, rows: Tensor) -> float:
        hp, every = self.hp, rows
        if self.policy.learns_from_sequences:
            every = (torch.arange(hp.num_steps)[:, None] * self.scenes.num_envs + rows[None]).flatten()
        outputs, values, old = self.fresh(batch, rows)
        learnt = batch.value_mask.flatten()[every]
        value, before = values[old.value_mask], old.values[old.value_mask]
        targets = (x.flatten()[every][learnt] for x in (self.extrinsic_returns, self.intrinsic_returns))
        extrinsic, intrinsic = targets
        error = (value[:, 0] - extrinsic) ** 2
        if hp.clip_vloss:
            kept = before[:, 0] + (value[:, 0] - before[:, 0]).clamp(-hp.clip_coef, hp.clip_coef)
            error = torch.max(error, (kept - extrinsic) ** 2)
        critic = 0.5 * error.mean() + 0.5 * ((value[:, 1] - intrinsic) ** 2).mean()

        draws = self.draws.reshape(-1, hp.update_epochs)[every.numpy(), self.epoch]
        taught = every[learnt & torch.from_numpy(draws < PROPORTION)]
        wide = self.inputs.flatten(0, 1)[taught]
        guess = ((self.policy.predictor(wide) - self.policy.target(wide)) ** 2).mean(-1).mean()

        policy_loss, ratio, difference = self.policy_loss(outputs, old)
        return self.step(policy_loss + hp.vf_coef * critic + guess, ratio, difference)


def moments(entries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance, begun with an entry of weight 1e-4, mean 0 and variance 1."""
    weight = 1e-4 + len(entries)
    mean = entries.sum(0) / weight
    return mean, (1e-4 * (1.0 + mean**2) + ((entries - mean) ** 2).sum(0)) / weight
