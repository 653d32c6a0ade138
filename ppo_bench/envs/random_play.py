"""Random play of a `VectorEnv`, for the conformance checker, and against policies of games."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.envs.base import EnvStep, VectorEnv
from ppo_bench.envs.spaces import get_num_choices


class Play(NamedTuple):
    """The record of T random steps: observations `[T + 1, N, ...]`, and the steps' other arrays `[T, N, ...]`."""

    obs: np.ndarray
    steps: EnvStep

    @property
    def done(self) -> np.ndarray:
        """Flags `[T, N]` bool of the steps that terminated or were truncated."""
        return self.steps.terminated | self.steps.truncated

    @property
    def resets(self) -> np.ndarray:
        """Flags `[T, N]` bool of the reset steps, which follow a done step."""
        resets = np.zeros_like(self.done)
        resets[1:] = self.done[:-1]
        return resets

    def mirror(self, players: int) -> Play:
        """A copy with the environments in reverse order; rows of a game of several `players` stay together."""
        order = _reverse_order(self.obs.shape[1], players)
        return Play(self.obs[:, order], self.steps.map(lambda x: x[:, order] if x.size else x))


def get_num_players(env: VectorEnv) -> int:
    """Number of rows of `env` that form one game."""
    return int(getattr(env, "players", 1))


def _reverse_order(num_envs: int, players: int) -> np.ndarray:
    return np.arange(num_envs).reshape(-1, players)[::-1].reshape(-1)


def split_by_component(space: Any, columns: np.ndarray) -> list[np.ndarray]:
    """`columns [N, A]`, with a column for each choice, split into one array for each component of `space`."""
    return np.split(columns, np.cumsum(get_num_choices(space))[:-1], axis=1)


def random_actions(env: VectorEnv, rng: np.random.Generator, action_mask: np.ndarray | None = None) -> np.ndarray:
    """Uniform random actions: integers `[N]` or `[N, K]` among the choices that `action_mask [N, A]` allows, or floats
    `[N, A]` in the intersection of the bounds and `[-1, 1]`."""
    from gymnasium import spaces

    space = env.action_space
    if action_mask is not None:
        parts = split_by_component(space, np.where(action_mask, rng.random(action_mask.shape), -1.0))
        choices = np.stack([part.argmax(1) for part in parts], 1)
        return choices[:, 0] if isinstance(space, spaces.Discrete) else choices
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, int(space.n), env.num_envs)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return rng.integers(0, getattr(space, "nvec", 2), (env.num_envs, *space.shape))
    low, high = np.clip(-1.0, space.low, space.high), np.clip(1.0, space.low, space.high)
    return rng.uniform(low, high, (env.num_envs, *space.shape)).astype(np.float32)


def play_at_random(
    env: VectorEnv,
    seeds: Sequence[int],
    num_steps: int,
    alter_reset_actions: bool = False,
    mirror: bool = False,
) -> Play:
    """A `Play` of `num_steps` random steps from `seeds`. Calls with equal arguments take equal actions.

    `alter_reset_actions` takes other actions at reset steps and in rows that pass. `mirror` reverses the order of seeds
    and actions, and takes other actions in the first environment or game, which is the last one in the reversed order.
    """
    players = get_num_players(env)
    order = _reverse_order(env.num_envs, players) if mirror else np.arange(env.num_envs)
    rng, other_rng = np.random.default_rng(1), np.random.default_rng(2)
    policy_input = env.reset([seeds[int(i)] for i in order]).map(np.copy)
    observations: list[np.ndarray] = [policy_input.obs]
    resets = np.zeros(env.num_envs, bool)
    steps: list[EnvStep] = []
    for _ in range(num_steps):
        action_mask = None if policy_input.action_mask is None else policy_input.action_mask[order]
        actions = random_actions(env, rng, action_mask)
        if alter_reset_actions:
            ignored = resets if policy_input.policy_mask is None else resets | ~policy_input.policy_mask
            actions[ignored] = random_actions(env, other_rng)[ignored]
        if mirror:
            actions[:players] = random_actions(env, other_rng, action_mask)[:players]
        step = env.step(actions[order]).map(np.copy)
        policy_input, resets = step.policy_input, step.terminated | step.truncated
        observations.append(step.obs)
        steps.append(step._replace(obs=np.empty(0)))
    return Play(np.stack(observations), EnvStep.stack(steps))
