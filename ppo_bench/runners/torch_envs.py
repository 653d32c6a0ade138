"""Environments that PyTorch steps as tensors on its device, with normalisation and bookkeeping of their rollouts."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import EnvStep, GraphEnv, Seen
from ppo_bench.envs.float_range import fits, out_of_range
from ppo_bench.mathematics.arrays import Arrays, filled, under
from ppo_bench.mathematics.normalize import Across, ActionBounds
from ppo_bench.runners.base import Problem
from ppo_bench.runners.declared import env_arrays, normalization_arrays
from ppo_bench.runners.env_steps import STEP_FLAGS, after_step, observed
from ppo_bench.runners.envs import Rollout
from ppo_bench.runners.episodes import Totals, fold_episodes, no_totals
from ppo_bench.runners.torch import TorchLearner

Tensors = dict[str, Tensor]


@dataclass
class TorchEnvState:
    """State of the environments, on the device but for `totals`."""

    state: Any
    """State that the environments' step function takes and returns."""
    arrays: Tensors
    """The `normalization_arrays`, and the `env_arrays` except episode returns and lengths."""
    totals: Totals
    """Return and length so far of each environment's current episode, on the host."""


class TorchEnvs:
    """`Envs` on PyTorch's device, which nothing leaves before a rollout ends; see ppo_bench/runners/envs.py."""

    def __init__(self, problem: Problem, learner: TorchLearner) -> None:
        """They are on the device of `learner`, which also compiles their steps, if it compiles."""
        if not (isinstance(problem.env, GraphEnv) and problem.env.portable):
            raise ConfigError("these environments are part of a JAX program: use framework=jax_xla")
        self._problem, self._env, self._learner = problem, problem.env, learner
        bounds = problem.action_bounds
        if bounds is not None:
            low, high = (torch.from_numpy(bound).to(learner.device) for bound in (bounds.low, bounds.high))
            bounds = ActionBounds(low, high, bounds.rescaled)  # type: ignore[arg-type]  # tensors serve as well
        self._step_envs = functools.partial(_step, problem, learner.across, bounds)
        self._compiled: dict[EnvStep, Any] = {}

    # --- Between rollouts ---------------------------------------------------------------------------------------------

    def own(self, arrays: Arrays) -> TorchEnvState:
        """Raise `ConfigError`: these environments cannot replay a recording."""
        raise ConfigError("environments that are part of a program cannot replay a recording: use another backend")

    @torch.no_grad()
    def start(self, arrays: Arrays, seed: int, iteration: int) -> TorchEnvState:
        """See `Envs.start`."""
        device = self._learner.device
        start = self._env.reset_over(torch, self._problem.env_seeds(seed, iteration), device=device)
        if start.step not in self._compiled:
            function = functools.partial(self._step_envs, start.step)
            self._compiled[start.step] = self._learner.compiled(function)
        self._advance, self._draw = self._compiled[start.step], start.draw
        numbers = filled(env_arrays(self._problem))
        numbers |= {each.name: arrays[each.name] for each in normalization_arrays(self._env.observation_space.shape)}
        for name in ("envs.obs", "envs.returns", "envs.lengths"):
            del numbers[name]
        tensors = {name: torch.from_numpy(np.array(array)).to(device) for name, array in numbers.items()}
        tensors |= observed(torch, self._problem, tensors, start.seen.obs, self._learner.across)
        return TorchEnvState(start.state, tensors, no_totals(self._problem.num_envs))

    def export(self, state: TorchEnvState) -> Arrays:
        """See `Envs.export`: the running statistics alone."""
        statistics = under("normalize", state.arrays)
        return {f"normalize.{name}": np.array(array.cpu().numpy()) for name, array in statistics.items()}

    def lengths(self, state: TorchEnvState) -> np.ndarray:
        """See `Envs.lengths`."""
        return state.totals.lengths

    def close(self) -> None:
        """See `Envs.close`."""
        self._env.close()

    # --- A rollout ----------------------------------------------------------------------------------------------------

    def seen(self, state: TorchEnvState) -> Seen:
        """See `Envs.seen`."""
        return Seen(state.arrays["envs.obs"], start=state.arrays["envs.start"])

    def begin(self, state: TorchEnvState) -> Tensors:
        """See `Envs.begin`: `rewards [T, 2, N]`, raw ones last, and `flags [T, F, N]`."""
        state.state = self._draw(state.state, self._problem.ppo.num_steps)
        shape, device = (self._problem.ppo.num_steps, 2, self._problem.num_envs), self._learner.device
        flags = torch.empty(shape[0], len(STEP_FLAGS), shape[2], dtype=torch.bool, device=device)
        return {"rewards": torch.empty(shape, dtype=torch.float32, device=device), "flags": flags}

    def step(self, state: TorchEnvState, rollout: Tensors, t: int, actions: Tensor) -> tuple[TorchEnvState, Tensors]:
        """See `Envs.step`."""
        after, arrays, rewards, flags = self._advance(state.state, state.arrays, actions)
        rollout["rewards"][t], rollout["flags"][t] = rewards, flags
        return TorchEnvState(after, arrays, state.totals), rollout

    def end(self, state: TorchEnvState, rollout: Tensors) -> tuple[TorchEnvState, Rollout]:
        """See `Envs.end`."""
        rewards, flags = rollout["rewards"], dict(zip(STEP_FLAGS, rollout["flags"].unbind(1), strict=True))
        raw_rewards = rewards[:, 1].cpu().numpy()
        over, valid = (flags[name].cpu().numpy() for name in ("episode_over", "valid"))
        if not fits(raw_rewards, self._problem.max_reward):
            raise out_of_range("a reward", raw_rewards.T, self._problem.first_env, self._problem.max_reward)
        totals, episodes = fold_episodes(state.totals, raw_rewards, over, valid)
        masked_fraction = 1.0 - float(np.mean(valid))
        return TorchEnvState(state.state, state.arrays, totals), Rollout(
            {"rewards": rewards[:, 0], **flags}, episodes, masked_fraction
        )


def _step(
    problem: Problem,
    across: Across,
    bounds: ActionBounds | None,
    env_step: EnvStep,
    state: Any,
    arrays: Tensors,
    actions: Tensor,
) -> tuple[Any, Tensors, Tensor, Tensor]:
    """State and arrays after a step; rewards `[2, N]` float32, raw ones last, and flags `[F, N]` (`STEP_FLAGS`)."""
    given: Any
    state, given = env_step(state, bounds.within(torch, actions) if bounds else actions)
    after, rewards, flags = after_step(torch, problem, arrays, given, across)
    numbers = torch.stack([rewards, given.raw_reward])
    return state, dict(after), numbers, torch.stack([flags[name] for name in STEP_FLAGS])
