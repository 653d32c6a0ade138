"""Environments of tensors whose episodes begin in the step in which others end, with the bookkeeping of rollouts.

A rollout has no reset steps, so the value of the next observation is not that of a truncated episode's final one. The
value of the final observation is added to the reward of the step that truncates its episode, and the episode counts as
terminated (Pardo et al. 2018, "Time Limits in Reinforcement Learning"; Stable-Baselines3 does the same).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.envs.base import EnvStep
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.normalize import AllReduceMoments
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.env_steps import STEP_FLAGS, after_step
from ppo_bench.runners.host import EnvRollout
from ppo_bench.runners.torch import TorchLearner
from ppo_bench.runners.torch_envs import Tensors, TorchEnvs, TorchEnvState


class SameStepEnvs(TorchEnvs):
    """`TorchEnvs` with same-step autoreset. Their own step is neither compiled nor recorded."""

    def __init__(self, spec: TrainingSpec, learner: TorchLearner) -> None:
        super().__init__(spec, learner)
        if len(spec.algorithm.streams) > 1:
            raise ConfigError(
                f"algorithm={spec.algorithm.name} has rewards that go on after an episode's end, which "
                "environments with same-step autoreset cannot have: use algorithm=ppo or another backend"
            )
        if spec.devices > 1:
            raise ConfigError(f"devices={spec.devices}: backend=tensors has one seed for all environments: use 1")
        self._advance = self._advance_by_own_step
        self._after_step = learner.compile(functools.partial(_after_step, spec, learner.all_reduce_moments))
        self._normalize_final_obs = learner.compile(functools.partial(_normalize_final_obs, spec))
        self._final_obs: Tensor | None = None
        """Final observations of the latest step, as the network takes them; None if it returned none."""

    def reset(self, arrays: Arrays, seed: int, iteration: int) -> TorchEnvState:
        """See `Envs.reset`."""
        with torch.inference_mode():
            return self._reset_state(arrays, seed, iteration)

    def _advance_by_own_step(self, state: Any, arrays: Tensors, actions: Tensor) -> Any:
        """See `TorchEnvs`: also the normalised final observations, if the step has any."""
        step: EnvStep
        state, step = self._env.step(state, self._bounds.to_env_actions(torch, actions) if self._bounds else actions)
        arrays, rewards, flags = self._after_step(arrays, step._replace(final_obs=None))
        self._final_obs = None if step.final_obs is None else self._normalize_final_obs(arrays, step.final_obs)
        return state, arrays, rewards, flags

    # --- A rollout ----------------------------------------------------------------------------------------------------

    def rollout(self, learner: Any, state: TorchEnvState) -> tuple[Any, TorchEnvState, Tensors]:
        """The states of learner and environments after the steps of a rollout, and what `end_rollout` takes.

        It has `bootstraps [T, N]`, the value of each step's final observation, and `has_final [T]`, whether the step
        had final observations.
        """
        num_steps, bootstrap = self._spec.ppo.num_steps, self._spec.ppo.bootstrap_truncated
        state, rollout = self.begin_rollout(state)
        bootstraps, has_final = [], []
        for t in range(num_steps):
            learner, actions = self._learner.act(learner, t, self.policy_input(state))
            state, rollout = self.step(state, rollout, t, actions)
            has_final.append(self._final_obs is not None)
            if bootstrap and self._final_obs is not None:
                bootstraps.append(self._learner.values(learner, t, self._final_obs).clone())
            else:
                bootstraps.append(torch.zeros_like(learner.rows[t]["values"]))
        learner, _ = self._learner.act(learner, num_steps, self.policy_input(state))
        return learner, state, {**rollout, "bootstraps": torch.stack(bootstraps), "has_final": torch.tensor(has_final)}

    def end_rollout(self, state: TorchEnvState, rollout: Tensors) -> tuple[TorchEnvState, EnvRollout]:
        """See `Envs.end_rollout`. Raises `RunError` if a truncated episode has no final observation to bootstrap
        from."""
        state, result = super().end_rollout(state, rollout)
        hp, flags = self._spec.ppo, result.flags
        truncated = flags["truncated"] & ~flags["terminated"]
        if hp.bootstrap_truncated:
            if not rollout["has_final"].all() and truncated.cpu()[~rollout["has_final"]].any():
                raise RunError(
                    "a time limit has ended an episode, and info has no final_observation to take the value of: return "
                    "it, or treat time limits as terminal states by ppo.bootstrap_truncated=false"
                )
            # The value of an observation that is not final can be anything.
            bootstraps = torch.where(truncated, rollout["bootstraps"], 0.0)
            flags = {**flags, "rewards": flags["rewards"] + hp.gamma * bootstraps}
        return state, result._replace(flags={**flags, "terminated": flags["terminated"] | truncated})


def _after_step(
    spec: TrainingSpec, all_reduce_moments: AllReduceMoments, arrays: Tensors, step: EnvStep
) -> tuple[Tensors, Tensor, Tensor]:
    """Arrays after a step; rewards `[2, N]` float32, raw ones last, and flags `[F, N]` (`STEP_FLAGS`)."""
    after, rewards, flags = after_step(torch, spec, arrays, step, all_reduce_moments)
    over = after["envs.done"]
    begun = {
        "envs.episode_start": over,
        "envs.done": torch.zeros_like(over),
        "envs.discounted_returns": torch.where(over, 0.0, after["envs.discounted_returns"]),
    }
    numbers = torch.stack([rewards, step.raw_reward])  # type: ignore[list-item]  # tensors
    return {**after, **begun}, numbers, torch.stack([flags[name] for name in STEP_FLAGS])


def _normalize_final_obs(spec: TrainingSpec, arrays: Tensors, final_obs: Tensor) -> Tensor:
    """Final observations in the network's layout, normalised by the statistics in `arrays`, which stay as they are."""
    if spec.ppo.norm_obs:
        stats = normalize.select_stats(arrays, "normalize.obs")
        obs = final_obs.to(torch.float64)
        final_obs = normalize.normalize_observations(torch, stats, obs, spec.ppo.obs_clip)
    arranged: Tensor = spec.network.to_input_layout(final_obs, torch)
    return arranged
