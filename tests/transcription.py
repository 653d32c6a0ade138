"""PPO as its papers state it, in plain PyTorch and float64: rows that are not learnt from are dropped, not masked.

It shares random numbers and initial weights with the package, and no equation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Bernoulli, Categorical, Independent, Normal

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.mathematics import noise
from tests.scenes import Endings
from tests.transcribed_layers import Policy


class IndependentCategoricals:
    """Independent distributions, of one component of an action each."""

    def __init__(self, parts: Sequence[Categorical]) -> None:
        self.parts = parts

    def log_prob(self, actions: Tensor) -> Tensor:
        of_each = [part.log_prob(choices) for part, choices in zip(self.parts, actions.unbind(-1), strict=True)]
        return torch.stack(of_each).sum(0)

    def entropy(self) -> Tensor:
        return torch.stack([part.entropy() for part in self.parts]).sum(0)


class Batch(NamedTuple):
    """One rollout, `[T, N, ...]` each."""

    obs: Tensor
    memory: Tensor
    """The memory before each step."""
    episode_start: Tensor
    """Whether that is to be forgotten."""
    action_mask: Tensor
    actions: Tensor
    log_probs: Tensor
    values: Tensor
    advantages: Tensor
    value_mask: Tensor
    """Whether the critic learns from a step."""
    policy_mask: Tensor
    """Whether the policy does."""


class Ppo:
    """The reference of conf/algorithm/ppo.yaml: training on the scenes that a runner has played."""

    def __init__(self, policy: Policy, scenes: Endings, hp: Hyperparameters, num_iterations: int, seed: int) -> None:
        self.policy, self.scenes, self.hp, self.num_iterations, self.seed = policy, scenes, hp, num_iterations, seed
        self.actions: spaces.Space = scenes.action_space
        self.adam = torch.optim.AdamW(
            policy.parameters(), hp.learning_rate, eps=hp.adam_eps, weight_decay=hp.weight_decay
        )
        self.memory = policy.memory_of(scenes.num_envs)
        self.iteration = 0
        self.epoch, self.epochs = 0, 0
        """Passes over a batch, in all."""
        self.clipped, self.kept, self.shrunk = 0, 0, 0
        """Ratios outside of the interval and within it, and gradients that were too long, in all."""

    @classmethod
    def around(cls, policy: Policy, space: spaces.Box, frozen: dict[str, np.ndarray]) -> Policy:
        """`policy` with all that the algorithm learns besides, or has beside it."""
        return policy

    # --- Where episodes begin ---------------------------------------------------------------------------------------

    def steps_that_count(self, done: np.ndarray) -> np.ndarray:
        """False at each step that only reset its environment: after the `done` ones."""
        return np.concatenate([np.ones_like(done[:1]), ~done[:-1]])

    def starts(self, done: np.ndarray, value_mask: np.ndarray) -> np.ndarray:
        """True at the first observation of each episode: after the steps that only reset an environment."""
        return np.concatenate([np.ones_like(value_mask[:1]), ~value_mask])

    # --- A rollout --------------------------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Learn from the next rollout."""
        batch, memory = self.rollout(self.iteration * self.hp.num_steps)
        self.iteration += 1
        if self.hp.anneal_lr:
            self.adam.param_groups[0]["lr"] = self.annealed(self.hp.learning_rate, self.hp.final_learning_rate)
        samples = self.scenes.num_envs * (1 if self.policy.learns_from_sequences else self.hp.num_steps)
        key = np.array([self.seed], np.int32), np.array([self.iteration], np.int32)
        places = np.arange(self.hp.update_epochs, dtype=np.int32), np.arange(samples, dtype=np.int32)
        for self.epoch, permutation in enumerate(noise.permutations(np, *key, *places)):
            for rows in permutation.reshape(self.hp.num_minibatches, -1):
                divergence = self.descend(batch, torch.from_numpy(rows))
            self.epochs += 1
            if self.hp.target_kl is not None and divergence > self.hp.target_kl:
                break
        self.memory = memory

    def annealed(self, first: float, last: float) -> float:
        """A coefficient in this iteration, on the line between its first and its last value."""
        steps, every = self.hp.anneal_timesteps, self.scenes.num_envs * self.hp.num_steps
        return first + (last - first) * (self.iteration - 1) / (steps / every if steps else self.num_iterations)

    @torch.no_grad()
    def rollout(self, first: int) -> tuple[Batch, Tensor]:
        """The `num_steps` steps from step `first` of the scenes on, and the memory after them."""
        steps, policy_inputs, hp = self.scenes.steps, self.scenes.policy_inputs, self.hp
        last = first + hp.num_steps
        done = np.stack([step.terminated | step.truncated for step in steps[:last]])
        value_mask = self.steps_that_count(done)
        episode_start = torch.from_numpy(starts := self.starts(done, value_mask))[first:]
        obs = torch.from_numpy(self.observations([s.obs for s in policy_inputs[: last + 1]])[first:])
        action_mask = torch.from_numpy(np.stack([s.action_mask for s in policy_inputs[first : last + 1]]))
        memories, outputs, values = [self.memory], [], []
        for t in range(hp.num_steps + 1):
            output, value, memory = self.policy(obs[t], memories[-1], episode_start[t])
            memories.append(memory)
            outputs.append(output)
            values.append(value)
        actions = self.sample(torch.stack(outputs[:-1]), action_mask[:-1])
        self.compare_with_the_environments(actions, first)
        log_probs = self.distribution(torch.stack(outputs[:-1]), action_mask[:-1]).log_prob(actions)
        rewards = self.rewards(np.stack([step.reward for step in steps[:last]]), value_mask, starts)[first:]
        self.memories = memories
        advantages = self.advantages(rewards, torch.stack(values).numpy(), first)
        learnt, policy_mask = value_mask[first:], np.stack([s.policy_mask for s in policy_inputs[first:last]])
        # A pass stays one, whether or not resets are learnt from.
        policy_mask = policy_mask & learnt if hp.mask_resets else policy_mask | ~learnt
        learnt = learnt | (not hp.mask_resets)
        flags = (torch.from_numpy(x) for x in (advantages, learnt, policy_mask))
        observed = obs[:-1], torch.stack(memories[:-2]), episode_start[:-1], action_mask[:-1]
        return Batch(*observed, actions, log_probs, torch.stack(values[:-1]), *flags), memories[-2]

    def observations(self, seen: list[np.ndarray]) -> np.ndarray:
        """All observations so far, each by the statistics of those up to it, episodes' last ones among them."""
        all_obs = np.stack(seen).astype(np.float64)
        if not self.hp.norm_obs:
            return all_obs
        seen_so_far = moments(all_obs, np.ones(all_obs.shape[:2], bool))
        normal = [(row - mean) / np.sqrt(var + 1e-8) for row, (mean, var) in zip(all_obs, seen_so_far, strict=True)]
        return np.clip(normal, -self.hp.obs_clip, self.hp.obs_clip)

    def rewards(self, rewards: np.ndarray, value_mask: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """All rewards so far, each by the deviation of the discounted sums up to it."""
        rewards = rewards.astype(np.float64)
        if not self.hp.norm_reward:
            return rewards
        sums = np.zeros(rewards.shape)
        for env in range(rewards.shape[1]):
            total = 0.0
            for t in range(len(rewards)):
                total = 0.0 if starts[t, env] else total
                total = total * self.hp.gamma + rewards[t, env] if value_mask[t, env] else 0.0
                sums[t, env] = total
        normal = [row / np.sqrt(v + 1e-8) for row, (_, v) in zip(rewards, moments(sums, value_mask), strict=True)]
        # Runners keep rewards in float32.
        return np.clip(normal, -self.hp.reward_clip, self.hp.reward_clip).astype(np.float32).astype(np.float64)

    def advantages(self, rewards: np.ndarray, values: np.ndarray, first: int) -> np.ndarray:
        """GAE as its definition, a sum over what follows within the episode (Schulman et al. 2016, eq. 16)."""
        advantages, hp, after = np.zeros_like(rewards), self.hp, self.values_after_steps(values, first)
        for start, env in np.ndindex(*rewards.shape):
            weight = 1.0
            for t in range(start, len(rewards)):
                step = self.scenes.steps[first + t]
                terminated, truncated = bool(step.terminated[env]), bool(step.truncated[env])
                ends_for_good = terminated or (truncated and not hp.bootstrap_truncated)
                following = 0.0 if ends_for_good else hp.gamma * after[t, env]
                advantages[start, env] += weight * (rewards[t, env] + following - values[t, env])
                weight *= hp.gamma * hp.gae_lambda
                if terminated or truncated:
                    break
        return advantages

    def values_after_steps(self, values: np.ndarray, first: int) -> np.ndarray:
        """Values `[T, N]` of the observations that steps lead to, which may be their episodes' last."""
        return values[1:]

    # --- Actions ----------------------------------------------------------------------------------------------------

    def distribution(self, outputs: Tensor, action_mask: Tensor) -> Any:
        if isinstance(self.actions, spaces.Box):
            assert self.policy.log_std is not None
            return Independent(Normal(outputs, self.policy.log_std.exp()), 1)
        if isinstance(self.actions, spaces.MultiBinary):
            return Independent(Bernoulli(logits=outputs[..., 1::2] - outputs[..., ::2]), 1)
        outputs = outputs.masked_fill(~action_mask, -torch.inf)
        if isinstance(self.actions, spaces.MultiDiscrete):
            parts = outputs.split(self.actions.nvec.tolist(), -1)
            return IndependentCategoricals([Categorical(logits=part) for part in parts])
        return Categorical(logits=outputs)

    def sample(self, outputs: Tensor, action_mask: Tensor) -> Tensor:
        """The actions `[T, N, ...]` that belong to the noise of this iteration."""
        steps, envs, lanes = (np.arange(n, dtype=np.int32) for n in outputs.shape)
        key = np.array([self.seed], np.int32), np.array([self.iteration + 1], np.int32)
        words = noise.action_words(np, *key, steps, envs, lanes)
        if isinstance(self.actions, spaces.Box):
            assert self.policy.log_std is not None
            return outputs + self.policy.log_std.exp() * torch.from_numpy(noise.normal(np, words, np.float64))
        scores = (outputs + torch.from_numpy(noise.gumbel(np, words, np.float64))).masked_fill(~action_mask, -torch.inf)
        if isinstance(self.actions, spaces.MultiBinary):
            return scores.unflatten(-1, (-1, 2)).argmax(-1).double()
        if isinstance(self.actions, spaces.MultiDiscrete):
            return torch.stack([part.argmax(-1) for part in scores.split(self.actions.nvec.tolist(), -1)], -1)
        return scores.argmax(-1)

    def compare_with_the_environments(self, actions: Tensor, first: int) -> None:
        """They were given the same, within the bounds of their space."""
        taken, expected = np.stack(self.scenes.actions[first : first + len(actions)]), actions.numpy()
        if isinstance(self.actions, spaces.Box):
            expected = expected.clip(self.actions.low, self.actions.high)
        np.testing.assert_allclose(taken, expected, rtol=0, atol=1e-12)

    # --- An update --------------------------------------------------------------------------------------------------

    def fresh(self, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor, Batch]:
        """The policy's outputs and values on a minibatch, and what the rollout has of it."""
        if not self.policy.learns_from_sequences:
            rows = rows[batch.value_mask.flatten()[rows]]
            flat = Batch(*(x.flatten(0, 1)[rows] for x in batch))
            return *self.policy(flat.obs, flat.memory, flat.episode_start)[:2], flat
        envs = Batch(*(x[:, rows] for x in batch))
        memory, outputs, values = envs.memory[0], [], []
        for obs, episode_start in zip(envs.obs, envs.episode_start, strict=True):
            output, value, memory = self.policy(obs, memory, episode_start)
            outputs.append(output)
            values.append(value)
        return torch.cat(outputs), torch.cat(values), Batch(*(x.flatten(0, 1) for x in envs))

    def descend(self, batch: Batch, rows: Tensor) -> float:
        """One step of Adam; how far the policy had gone from that of the rollout."""
        hp = self.hp
        outputs, values, old = self.fresh(batch, rows)
        value, before = values[old.value_mask], old.values[old.value_mask]
        target = (old.advantages + old.values)[old.value_mask]
        error = (value - target) ** 2
        if hp.clip_vloss:
            error = torch.max(error, (before + (value - before).clamp(-hp.clip_coef, hp.clip_coef) - target) ** 2)
        policy_loss, ratio, difference = self.policy_loss(outputs, old)
        return self.step(policy_loss + hp.vf_coef * 0.5 * error.mean(), ratio, difference)

    def policy_loss(self, outputs: Tensor, old: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """What the policy minimises, and ratios and their logarithms."""
        hp, learnt = self.hp, old.policy_mask
        policy = self.distribution(outputs[learnt], old.action_mask[learnt])
        advantage = old.advantages[learnt]
        if hp.norm_adv:
            advantage = (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)
        difference = policy.log_prob(old.actions[learnt]) - old.log_probs[learnt]
        ratio = difference.exp()
        surrogate = torch.min(ratio * advantage, ratio.clamp(1 - hp.clip_coef, 1 + hp.clip_coef) * advantage)
        final = hp.final_ent_coef
        bonus = hp.ent_coef if final is None else self.annealed(hp.ent_coef, final)
        return -surrogate.mean() - bonus * policy.entropy().mean(), ratio, difference

    def step(self, loss: Tensor, ratio: Tensor, difference: Tensor) -> float:
        """One step of Adam down the loss; how far the policy had gone from that of the rollout."""
        hp = self.hp
        self.adam.zero_grad()
        loss.backward()
        gradients = [p.grad for p in self.policy.parameters() if p.grad is not None]
        norm = torch.cat([gradient.flatten() for gradient in gradients]).norm()
        if norm > hp.max_grad_norm:
            for gradient in gradients:
                gradient.mul_(hp.max_grad_norm / norm)
        self.adam.step()
        outside = int(((ratio - 1.0).abs() > hp.clip_coef).sum())
        self.clipped, self.kept = self.clipped + outside, self.kept + len(ratio) - outside
        self.shrunk += int(norm > hp.max_grad_norm)
        return float((ratio - 1.0 - difference).detach().mean())


def moments(rows: np.ndarray, counts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Mean and variance of the entries of `rows [T, N, ...]` that count, up to each row.

    As gymnasium begins them: with an entry of weight 1e-4, mean 0 and variance 1.
    """
    found = []
    for t in range(1, len(rows) + 1):
        entries = rows[:t][counts[:t]]
        weight = 1e-4 + len(entries)
        mean = entries.sum(0) / weight
        found.append((mean, (1e-4 * (1.0 + mean**2) + ((entries - mean) ** 2).sum(0)) / weight))
    return found
