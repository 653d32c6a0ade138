"""Random play of any environments on the host, for those who judge them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.envs.base import Step, VectorEnv


class Play(NamedTuple):
    """What a play saw: observations `[T + 1, N, ...]`, and the steps' other arrays `[T, N]`."""

    obs: np.ndarray
    steps: Step

    @property
    def done(self) -> np.ndarray:
        """`[T, N]` bool, terminated or truncated."""
        return self.steps.terminated | self.steps.truncated

    @property
    def resets(self) -> np.ndarray:
        """`[T, N]` bool, the steps after a done one."""
        resets = np.zeros_like(self.done)
        resets[1:] = self.done[:-1]
        return resets

    def mirrored(self, players: int) -> Play:
        """The same with its environments in the opposite order; games, if they are of several players."""
        order = _opposite(self.obs.shape[1], players)
        return Play(self.obs[:, order], self.steps.map(lambda x: x[:, order] if x.size else x))


def players_of(env: VectorEnv) -> int:
    """How many rows are one game."""
    return int(getattr(env, "players", 1))


def _opposite(num_envs: int, players: int) -> np.ndarray:
    return np.arange(num_envs).reshape(-1, players)[::-1].reshape(-1)


def by_component(space: Any, lanes: np.ndarray) -> list[np.ndarray]:
    """Lanes `[N, A]` of each component of the choices of `space`."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return [lanes]
    sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
    return np.split(lanes, np.cumsum(sizes)[:-1], axis=1)


def random_actions(env: VectorEnv, rng: np.random.Generator, legal: np.ndarray | None = None) -> np.ndarray:
    """Uniform choices `[N]` or `[N, K]` of those that are `legal [N, A]`; or floats `[N, A]` within the bounds and, as
    far as those allow, +-1."""
    from gymnasium import spaces

    space = env.action_space
    if legal is not None:
        parts = by_component(space, np.where(legal, rng.random(legal.shape), -1.0))
        choices = np.stack([part.argmax(1) for part in parts], 1)
        return choices[:, 0] if isinstance(space, spaces.Discrete) else choices
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, int(space.n), env.num_envs)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return rng.integers(0, getattr(space, "nvec", 2), (env.num_envs, *space.shape))
    low, high = np.clip(-1.0, space.low, space.high), np.clip(1.0, space.low, space.high)
    return rng.uniform(low, high, (env.num_envs, *space.shape)).astype(np.float32)


def play(
    env: VectorEnv,
    seeds: Sequence[int],
    num_steps: int,
    alter_reset_actions: bool = False,
    mirror: bool = False,
) -> Play:
    """`num_steps` random steps from `seeds`, always with the same actions but where they are to be altered.

    `alter_reset_actions`: other actions at resets and where a row passes. `mirror`: seeds and actions in the opposite
    order, and other actions in the first environment or game, which then is the last.
    """
    players = players_of(env)
    order = _opposite(env.num_envs, players) if mirror else np.arange(env.num_envs)
    rng, other_rng = np.random.default_rng(1), np.random.default_rng(2)
    seen = env.reset([seeds[int(i)] for i in order]).map(np.copy)
    observations: list[np.ndarray] = [seen.obs]
    resets = np.zeros(env.num_envs, bool)
    steps: list[Step] = []
    for _ in range(num_steps):
        legal = None if seen.legal is None else seen.legal[order]
        actions = random_actions(env, rng, legal)
        if alter_reset_actions:
            ignored = resets if seen.acts is None else resets | ~seen.acts
            actions[ignored] = random_actions(env, other_rng)[ignored]
        if mirror:
            actions[:players] = random_actions(env, other_rng, legal)[:players]
        step = env.step(actions[order]).map(np.copy)
        seen, resets = step.seen, step.terminated | step.truncated
        observations.append(step.obs)
        steps.append(step._replace(obs=np.empty(0)))
    return Play(np.stack(observations), Step.stack(steps))
