"""Environments that PyTorch steps as tensors on its device, with normalisation and bookkeeping of their rollouts."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, PolicyInput
from ppo_bench.envs.dynamics.base import EnvState, map_fields
from ppo_bench.envs.float_range import is_in_range, out_of_range
from ppo_bench.mathematics.arrays import Arrays, default_arrays, select_prefix
from ppo_bench.mathematics.distributions import ActionBounds
from ppo_bench.mathematics.normalize import AllReduceMoments
from ppo_bench.runners.array_specs import env_array_specs, normalization_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.cuda_graphs import GraphedCallable
from ppo_bench.runners.env_steps import STEP_FLAGS, after_step, observe
from ppo_bench.runners.episodes import EpisodeTotals, accumulate_episodes, zero_totals
from ppo_bench.runners.host import EnvRollout, RolloutFunction
from ppo_bench.runners.torch import TorchLearner

Tensors = dict[str, Tensor]


@dataclass
class TorchEnvState:
    """State of the environments, on the device but for `totals`."""

    state: EnvState
    """State that the environments' step function takes and returns."""
    arrays: Tensors
    """The arrays of `normalization_array_specs` and `env_array_specs`, except episode returns and lengths."""
    totals: EpisodeTotals
    """Return and length so far of each environment's current episode, on the host."""

    def tensors(self) -> list[Tensor]:
        """Its tensors, without random words that were drawn ahead."""
        dynamics, seeds, episodes, steps, done, _ = self.state
        return [*dynamics, seeds, episodes, steps, done, *(self.arrays[name] for name in sorted(self.arrays))]

    def copy(self) -> TorchEnvState:
        """A state with contiguous tensors of its own."""
        dynamics, seeds, episodes, steps, done, _ = self.state
        dynamics = map_fields(_own, dynamics)
        state = EnvState(dynamics, _own(seeds), _own(episodes), _own(steps), _own(done))
        return TorchEnvState(state, {name: _own(array) for name, array in self.arrays.items()}, self.totals)

    def overwrite(self, other: TorchEnvState) -> None:
        """Set its tensors, which stay where they are, to those of `other`, which may be some of them."""
        for tensor, value in zip(self.tensors(), [value.clone() for value in other.tensors()], strict=True):
            tensor.copy_(value)
        self.totals = other.totals


class TorchEnvs:
    """`Envs` on PyTorch's device, which nothing leaves before a rollout ends; see ppo_bench/runners/host.py."""

    def __init__(self, spec: TrainingSpec, learner: TorchLearner) -> None:
        """They are on the device of `learner`, which also compiles their steps, if it compiles."""
        assert isinstance(spec.env, GraphEnv)
        self._spec, self._env, self._learner = spec, spec.env, learner
        self._bounds = _bounds_on(learner.device, spec.action_bounds)
        self._advance = learner.compile(functools.partial(_step, spec, learner.all_reduce_moments, self._bounds))
        self._recorded: TorchEnvState | None = None
        """The state whose tensors a recorded rollout reads and writes."""

    # --- Between rollouts ---------------------------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> TorchEnvState:
        """Raise `ConfigError`: these environments cannot replay a recording."""
        raise ConfigError("environments on the device cannot replay a recording: use another backend")

    def reset(self, arrays: Arrays, seed: int, iteration: int) -> TorchEnvState:
        """See `Envs.reset`."""
        with torch.inference_mode(not self._learner.uses_cuda_graphs):  # compiled functions distinguish such tensors
            state = self._reset_state(arrays, seed, iteration)
            if not isinstance(state.state, EnvState):
                raise ConfigError(
                    "PyTorch steps environments on the device whose state is an EnvState: use framework=jax_xla"
                )
            state = state.copy()
        if self._learner.uses_cuda_graphs:
            self._recorded = self._recorded or state
            self._recorded.overwrite(state)
            return self._recorded
        return state

    def _reset_state(self, arrays: Arrays, seed: int, iteration: int) -> TorchEnvState:
        device = self._learner.device
        state, policy_input = self._env.reset(torch, self._spec.env_seeds(seed, iteration), device=device)
        if policy_input.action_mask is not None or policy_input.policy_mask is not None:
            raise ConfigError("PyTorch steps environments on the device that have no masks: use framework=jax_xla")
        numbers = default_arrays(env_array_specs(self._spec))
        numbers |= {
            each.name: arrays[each.name] for each in normalization_array_specs(self._env.observation_space.shape)
        }
        for name in ("envs.obs", "envs.returns", "envs.lengths"):
            del numbers[name]
        tensors = {name: torch.from_numpy(np.array(array)).to(device) for name, array in numbers.items()}
        tensors |= observe(torch, self._spec, tensors, policy_input.obs, self._learner.all_reduce_moments)
        return TorchEnvState(state, tensors, zero_totals(self._spec.num_envs))

    def export(self, state: TorchEnvState) -> Arrays:
        """See `Envs.export`: the running statistics alone."""
        statistics = select_prefix("normalize", state.arrays)
        return {f"normalize.{name}": np.array(array.cpu().numpy()) for name, array in statistics.items()}

    def close(self) -> None:
        """See `Envs.close`."""
        self._env.close()

    # --- A rollout ----------------------------------------------------------------------------------------------------

    def policy_input(self, state: TorchEnvState) -> PolicyInput:
        """See `Envs.policy_input`."""
        return PolicyInput(state.arrays["envs.obs"], episode_start=state.arrays["envs.episode_start"])

    def begin_rollout(self, state: TorchEnvState) -> tuple[TorchEnvState, Tensors]:
        """See `Envs.begin_rollout`: `rewards [T, 2, N]`, raw ones last, and `flags [T, F, N]`."""
        drawn = self._env.draw_reset_words(state.state, self._spec.ppo.num_steps)
        shape, device = (self._spec.ppo.num_steps, 2, self._spec.num_envs), self._learner.device
        flags = torch.empty(shape[0], len(STEP_FLAGS), shape[2], dtype=torch.bool, device=device)
        rewards = torch.empty(shape, dtype=torch.float32, device=device)
        return TorchEnvState(drawn, state.arrays, state.totals), {"rewards": rewards, "flags": flags}

    def step(self, state: TorchEnvState, rollout: Tensors, t: int, actions: Tensor) -> tuple[TorchEnvState, Tensors]:
        """See `Envs.step`."""
        after, arrays, rewards, flags = self._advance(state.state, state.arrays, actions)
        rollout["rewards"][t], rollout["flags"][t] = rewards, flags
        return TorchEnvState(after, arrays, state.totals), rollout

    def end_rollout(self, state: TorchEnvState, rollout: Tensors) -> tuple[TorchEnvState, EnvRollout]:
        """See `Envs.end_rollout`."""
        rewards, flags = rollout["rewards"], dict(zip(STEP_FLAGS, rollout["flags"].unbind(1), strict=True))
        # One copy to the host.
        raw_rewards, *ends = torch.stack([rewards[:, 1], flags["episode_over"], flags["value_mask"]]).cpu().numpy()
        over, value_mask = (array.astype(bool) for array in ends)
        if not is_in_range(raw_rewards):
            raise out_of_range("a reward", raw_rewards.T, self._spec.first_env)
        state.totals, episodes = accumulate_episodes(state.totals, raw_rewards, over, value_mask)
        # A copy, since `rewards` can be a tensor of inference mode, which no gradient can be taken through.
        learnt_from = {"rewards": rewards[:, 0].clone(), **flags}
        return state, EnvRollout(learnt_from, episodes, 1.0 - float(np.mean(value_mask)))


class GraphedRollout:
    """The function that runs a rollout, as a CUDA graph that is replayed by one launch: a `RolloutFunction`."""

    def __init__(self, rollout: RolloutFunction) -> None:
        self._rollout = rollout
        self._graph = GraphedCallable(
            self._run_in_place, changed=lambda learner, envs: [*learner.carry.values(), *envs.tensors()]
        )

    def __call__(self, learner: Any, envs: Any) -> tuple[Any, Any, Any]:
        """See `RolloutFunction`; both states keep their tensors."""
        return learner, envs, self._graph((learner, envs))

    def _run_in_place(self, fixed: Any) -> Tensors:
        """Run a rollout from the states in `fixed`, and overwrite them by those after it."""
        learner, envs = fixed
        _, after, rollout = self._rollout(learner, envs)
        envs.overwrite(after)
        found: Tensors = rollout
        return found


def _bounds_on(device: torch.device, bounds: ActionBounds | None) -> ActionBounds | None:
    """The same bounds as tensors on `device`."""
    if bounds is None:
        return None
    low, high = (torch.from_numpy(bound).to(device) for bound in (bounds.low, bounds.high))
    return ActionBounds(low, high, bounds.rescaled)  # type: ignore[arg-type]  # tensors serve as well


def _own(x: Tensor) -> Tensor:
    return x.clone(memory_format=torch.contiguous_format)


def _step(
    spec: TrainingSpec,
    all_reduce_moments: AllReduceMoments,
    bounds: ActionBounds | None,
    state: Any,
    arrays: Tensors,
    actions: Tensor,
) -> tuple[Any, Tensors, Tensor, Tensor]:
    """State and arrays after a step; rewards `[2, N]` float32, raw ones last, and flags `[F, N]` (`STEP_FLAGS`)."""
    env: Any = spec.env
    state, result = env.step(state, bounds.to_env_actions(torch, actions) if bounds else actions)
    after, rewards, flags = after_step(torch, spec, arrays, result, all_reduce_moments)
    numbers = torch.stack([rewards, result.raw_reward])
    return state, dict(after), numbers, torch.stack([flags[name] for name in STEP_FLAGS])
