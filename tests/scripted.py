"""Environments whose steps are scripted in advance, and rollouts of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from gymnasium import spaces

from ppo_bench.envs.base import EnvStep, PolicyInput
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.array_specs import normalization_array_specs
from ppo_bench.runners.base import Episode
from ppo_bench.runners.host_envs import HostEnvs
from tests.runners import problem_for

GAMMA = 0.5
WILD = 1000.0
"""What only a masked observation or reward may hold."""

Act = Callable[[int, PolicyInput], np.ndarray]


class Script:
    """Two environments that show the rows of a script, whatever the actions; row 0 is that of the reset."""

    masks_actions = False

    def __init__(
        self,
        obs: Sequence[Sequence[float]],
        rewards: Sequence[Sequence[float]] = (),
        terminated: Sequence[Sequence[int]] = (),
        truncated: Sequence[Sequence[int]] = (),
        lost_lives: Sequence[Sequence[int]] = (),
        policy_mask: Sequence[Sequence[int]] = (),
    ) -> None:
        self.num_envs = 2
        self.observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space: spaces.Discrete | spaces.Box = spaces.Discrete(2)
        self.obs = np.array(obs, np.float32)[..., None]
        rows = (len(obs), 2)
        self.rewards = np.array(rewards or np.zeros(rows), np.float32)
        self.terminated, self.truncated, self.lost_lives = (
            np.array(flags or np.zeros(rows), bool) for flags in (terminated, truncated, lost_lives)
        )
        self.policy_mask = np.array(policy_mask, bool) if policy_mask else None
        self.seeds: list[list[int]] = []
        self.actions: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.seeds.append(list(seeds))
        self.row = 0
        return PolicyInput(self.obs[0])

    def step(self, actions: np.ndarray) -> EnvStep:
        self.actions.append(actions.copy())
        self.row += 1
        row = self.row
        over = (self.terminated[row] | self.truncated[row]) & ~self.lost_lives[row]
        # What is learnt from is a tenth of the game's own reward, so that the two cannot be mistaken.
        return EnvStep(
            self.obs[row],
            self.rewards[row] / 10,
            self.terminated[row],
            self.truncated[row],
            over,
            self.rewards[row],
            None if self.policy_mask is None else self.policy_mask[row],
        )

    def close(self) -> None:
        pass


def host(env: Script, num_steps: int, norm_obs: bool = False, norm_reward: bool = False) -> HostEnvs:
    overrides = ["ppo.num_minibatches=1", "ppo.obs_clip=10", "ppo.reward_clip=10", f"ppo.gamma={GAMMA}"]
    switches = [f"ppo.num_steps={num_steps}", f"ppo.norm_obs={norm_obs}", f"ppo.norm_reward={norm_reward}"]
    return HostEnvs(problem_for(env, 1, [*overrides, *switches]))


def begun(envs: HostEnvs) -> Arrays:
    """Environments that have seen nothing."""
    return envs.reset({array.name: array.default() for array in normalization_array_specs((1,))}, 1, 0)


def collect(envs: HostEnvs, state: Arrays, act: Act) -> tuple[Arrays, Arrays, list[Episode]]:
    """The state after one rollout, its flags `[T, N]` and the episodes that ended."""
    state, rollout = envs.begin_rollout(state)
    for t in range(len(rollout["rewards"])):
        state, rollout = envs.step(state, rollout, t, act(t, envs.policy_input(state)))
    state, ended = envs.end_rollout(state, rollout)
    return state, dict(ended.flags), ended.episodes


def idle(t: int, policy_input: PolicyInput) -> np.ndarray:
    return np.zeros(2, int)


def watch(kept: list[PolicyInput]) -> Act:
    """An `act` that notes what it sees."""

    def act(t: int, policy_input: PolicyInput) -> np.ndarray:
        kept.append(PolicyInput(*(None if array is None else array.copy() for array in policy_input)))
        return np.zeros(2, int)

    return act
