"""Random play of any environments on the host, for those who judge them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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

    def mirrored(self) -> Play:
        """The same with its environments in the opposite order."""
        return Play(self.obs[:, ::-1], self.steps.map(lambda x: x[:, ::-1] if x.ndim > 1 else x))


def random_actions(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    """Uniform choices `[N]` or `[N, K]`, or floats `[N, A]` within the bounds and, as far as those allow, +-1."""
    from gymnasium import spaces

    space = env.action_space
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

    `alter_reset_actions`: other actions at resets. `mirror`: seeds and actions in the opposite order, and other actions
    in the first environment, which then is the last.
    """
    rng, other_rng = np.random.default_rng(1), np.random.default_rng(2)
    observations = [env.reset(seeds[::-1] if mirror else seeds).obs.copy()]
    steps: list[Step] = []
    for _ in range(num_steps):
        actions = random_actions(env, rng)
        if alter_reset_actions and steps:
            resets = steps[-1].terminated | steps[-1].truncated
            actions[resets] = random_actions(env, other_rng)[resets]
        if mirror:
            actions[0] = random_actions(env, other_rng)[0]
            actions = actions[::-1].copy()
        step = env.step(actions).map(np.copy)
        observations.append(step.obs)
        steps.append(step._replace(obs=np.empty(0)))
    return Play(np.stack(observations), Step.stack(steps))
