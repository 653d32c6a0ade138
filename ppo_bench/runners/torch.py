"""`Learner` in PyTorch; its functions run eagerly, compiled, or as CUDA graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, PolicyInput
from ppo_bench.mathematics.arrays import (
    Array,
    ArrayRole,
    Arrays,
    Tree,
    add_prefix,
    default_arrays,
    select_prefix,
    select_roles,
)
from ppo_bench.mathematics.normalize import AllReduceMoments
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.mathematics.shards import Shard
from ppo_bench.networks.network import ActOutputs, NetworkSpec
from ppo_bench.networks.torch.ops import TorchOps, parameter_views
from ppo_bench.runners import torch_functions
from ppo_bench.runners.array_specs import carry_array_specs, learner_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.cuda_graphs import GraphedCallable
from ppo_bench.runners.torch_adam import Adam
from ppo_bench.runners.torch_device import DEFAULT_THREADS, pick_device, set_precision, set_threads, threads_for
from ppo_bench.runners.torch_functions import UpdateOutputs
from ppo_bench.runners.torch_state import TorchTrainState, allocate
from ppo_bench.runners.update_functions import UpdateFunctions, make_update_functions
from ppo_bench.tuning.cores import num_available_cores
from ppo_bench.tuning.freed_memory import keep_freed_memory

CudaGraphs = bool | Literal["auto", "update"]
Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Transformation of a function before its first call, such as `torch.compile`."""


class TorchLearner:
    """A `Learner`; see ppo_bench/runners/host.py."""

    def __init__(
        self,
        spec: TrainingSpec,
        num_threads: int | None,
        compiler: Compiler | None = None,
        cuda_graphs: CudaGraphs = False,
    ) -> None:
        """`cuda_graphs` is the value of `framework.cudagraphs`; see conf/framework/torch_compile.yaml."""
        if cuda_graphs == "update" and spec.ppo.target_kl is not None:
            raise ConfigError("framework.cudagraphs=update cannot stop an update early: set ppo.target_kl=null")
        self._spec, self._ppo, self._network = spec, spec.ppo, spec.network
        precision = PRECISIONS[spec.precision]
        self._dtype, layers = getattr(torch, precision.parameters), getattr(torch, precision.layers)
        self.device = pick_device(spec.device, precision, spec.local_shard)
        """Device of its tensors."""
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.device.index or 0)  # the device on which streams and graphs are created
        if cuda_graphs in (True, "update") and not on_gpu:
            value = str(cuda_graphs).lower()
            raise ConfigError(f"framework.cudagraphs={value} needs a GPU, not device={self.device}: use auto or false")
        own = (*spec.parameters, *spec.algorithm.frozen_parameters(spec.network))
        set_threads(threads_for(own, num_threads, num_available_cores() if spec.process_group else DEFAULT_THREADS))
        self.uses_cuda_graphs = replay = on_gpu and cuda_graphs is not False
        """Whether functions are recorded as CUDA graphs."""
        self.execution: Mapping[str, object] = {
            "device": str(self.device),
            "devices": spec.devices,
            "threads": torch.get_num_threads(),
            "precision": set_precision(precision),
            "cuda_graphs": replay,
            "keeps_freed_memory": not on_gpu and spec.tuning.keep_freed_memory and keep_freed_memory(),
        } | ({"gpu": torch.cuda.get_device_name(self.device)} if on_gpu else {})
        ops = TorchOps(self._dtype, layers, spec.process_group)
        self.all_reduce_moments: AllReduceMoments = ops.all_reduce_moments
        """Moments over all processes, from those of this one."""
        ops.function(spec.network.module)  # before it is compiled
        self._update_functions = make_update_functions(spec, ops)
        self._rollout_buffer = allocate(spec, self.device)
        self.compile = compiled = compiler or (lambda function: function)
        """Transformation of functions before their first call."""
        self._envs_on_host = not isinstance(spec.env, GraphEnv)
        # On a CPU the call overhead of a compiled policy exceeds its gain: 43 against 25 microseconds for CartPole.
        act: Callable[..., ActOutputs] = functools.partial(_act, self._update_functions, spec.env.masks_actions)
        act = compiled(act) if on_gpu else act
        self._noise: Callable[..., Any] = GraphedCallable(self._action_noise) if replay else self._action_noise
        # A rollout of environments on the device is recorded as a whole (ppo_bench/runners/torch_envs.py).
        recorded_alone = replay and not (isinstance(spec.env, GraphEnv) and not spec.env.same_step)
        self._policy: Callable[..., Any] = GraphedCallable(act) if recorded_alone else act
        values: Callable[..., Tensor] = functools.partial(_values, self._update_functions)
        values = compiled(values) if on_gpu else values
        self._values: Callable[..., Any] = GraphedCallable(values) if recorded_alone else values
        self._steps, self._env_ids, self._lanes, epochs, samples, self._first_row = (
            torch.from_numpy(np.asarray(numbers, np.int32)).to(self.device)
            for numbers in (
                np.arange(self._ppo.num_steps + 1),
                spec.first_env + np.arange(spec.num_envs),
                np.arange(self._network.actions.action_dim),
                np.arange(self._ppo.update_epochs),
                spec.first_env + self._update_functions.sample_indices,
                [spec.first_env],
            )
        )
        gradient = functools.partial(torch_functions.clipped_gradient, self._update_functions, spec.parameters)
        gradient_step: Callable[..., Any] = functools.partial(torch_functions.gradient_step, compiled(gradient))
        targets: Callable[..., Any] = functools.partial(torch_functions.targets, self._update_functions)
        if replay and cuda_graphs != "update":
            gradient_step = GraphedCallable(gradient_step, changed=torch_functions.updated_tensors)
            targets = GraphedCallable(targets)
        update = functools.partial(
            torch_functions.update, self._update_functions, targets, gradient_step, epochs, samples
        )
        self._update: Callable[..., Any] = (
            GraphedCallable(update, changed=torch_functions.updated_tensors) if cuda_graphs == "update" else update
        )

    # --- An iteration -------------------------------------------------------------------------------------------------

    def acting_context(self) -> AbstractContextManager[object]:
        """See `Learner.acting_context`."""
        return torch.inference_mode()

    @torch.inference_mode()
    def begin_rollout(self, state: TorchTrainState, seed: int, iteration: int) -> TorchTrainState:
        """See `Learner.begin_rollout`."""
        state.noise = self._noise((), self._int_tensor(seed), self._int_tensor(iteration)).unbind()
        state.store_initial_carry()
        return state

    def act(self, state: TorchTrainState, t: int, policy_input: PolicyInput) -> tuple[TorchTrainState, Array]:
        """See `Learner.act`."""
        row = state.rows[t]
        # Moves observations in the host's memory layout and rearranges them on the device, where channels are last.
        # EnvPool's channels are first.
        row["obs"].copy_(self._to_device(policy_input.obs))
        others: list[Tensor] = []
        if policy_input.action_mask is not None:
            row["action_mask"].copy_(torch.from_numpy(policy_input.action_mask))
            others.append(row["action_mask"])
        if state.carry:
            others.append(self._to_device(policy_input.episode_start).to(self._dtype))
            others += state.carry_before_step(t)
        acted: ActOutputs = self._policy((state.arrays,), row["obs"], state.noise[t], *others)
        row["actions"].copy_(acted.actions)
        row["logits_or_mean"].copy_(acted.logits_or_mean)
        row["values"].copy_(acted.values)
        if state.carry:
            state.store_carry(t, acted.carry)
        return state, acted.actions.cpu().numpy() if self._envs_on_host else acted.actions

    def split(self, state: TorchTrainState, shards: Sequence[Shard]) -> list[TorchTrainState]:
        """See `Learner.split`. The parts are views of the state's tensors."""
        return [state.part(shard, self._update_functions.env_axes) for shard in shards]

    def join(self, state: TorchTrainState, parts: Sequence[TorchTrainState]) -> TorchTrainState:
        """See `Learner.join`."""
        return state

    def values(self, state: TorchTrainState, t: int, obs: Tensor) -> Tensor:
        """Values `[N]` of observations `[N, ...]` that follow step `t` of the rollout and that no action follows.

        The carry is not advanced.
        """
        inputs = [obs.to(state.rows[t]["obs"].dtype)]
        if state.carry:
            inputs.append(torch.zeros(len(obs), dtype=self._dtype, device=self.device))
            inputs += state.carry_before_step(t + 1)
        values: Tensor = self._values((state.arrays,), *inputs)
        return values

    def _to_device(self, array: Array) -> Tensor:
        """An array of the environments, from the host unless they are on the device."""
        return torch.from_numpy(array).to(self.device) if self._envs_on_host else array

    def _action_noise(self, fixed: Any, *key: Tensor) -> Any:
        """`UpdateFunctions.action_noise`; `key` are the seed and the iteration."""
        seed, iteration = key
        return self._update_functions.action_noise(
            seed, iteration, self._steps, self._env_ids, self._lanes, self._dtype
        )

    @torch.no_grad()
    def warmup(self, state: TorchTrainState, flags: Tree) -> TorchTrainState:
        """See `Learner.warmup`."""
        rollout = state.rollout_buffer | dict(
            zip(self._update_functions.learning_arrays, self._flags_to_device(flags), strict=True)
        )
        state.statistics = dict(self._update_functions.warmup(state.statistics, rollout))
        return state

    def reset_env_statistics(self, state: TorchTrainState) -> TorchTrainState:
        """See `Learner.reset_env_statistics`."""
        anew = default_arrays(select_roles(learner_array_specs(self._spec), ArrayRole.ENVIRONMENT))
        state.statistics |= {name: self._to_tensor(array) for name, array in select_prefix("statistics", anew).items()}
        return state

    def _flags_to_device(self, flags: Tree) -> list[Tensor]:
        return [self._to_device(flags[name]).to(self._dtype) for name in self._update_functions.learning_arrays]

    @torch.no_grad()
    def update(
        self, state: TorchTrainState, flags: Tree, seed: int, iteration: int, learning_rate: float
    ) -> tuple[TorchTrainState, dict[str, float]]:
        """See `Learner.update`."""
        if self.uses_cuda_graphs and self._spec.process_group:
            # Waits, with a timeout, for ranks that still step environments: recorded collectives have no timeout.
            self._spec.process_group.all_gather_object(None)
        rate = self._update_functions.learning_rate(state.statistics, learning_rate)
        state.adam.learning_rate.fill_(rate)
        statistics = (state.statistics[name] for name in self._update_functions.statistic_names)
        keys = self._int_tensor(seed), self._int_tensor(iteration), self._first_row
        outputs: UpdateOutputs = self._update((state,), *self._flags_to_device(flags), *keys, *statistics)
        state.statistics = {name: array.clone() for name, array in outputs.statistics.items()}
        metrics = dict(zip(outputs.metric_names, outputs.metrics.tolist(), strict=True))  # one copy to the host
        return state, metrics | {"learning_rate": float(rate)}

    def _int_tensor(self, value: int) -> Tensor:
        return torch.full((1,), value, dtype=torch.int32, device=self.device)

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> TorchTrainState:
        """See `Learner.load`."""
        parameters = self._spec.parameters
        flat_params, mean, variance = (
            self._to_tensor(np.concatenate([arrays[f"{kind}.{p.name}"].ravel() for p in parameters]))
            for kind in ("params", "adam.mean", "adam.variance")
        )
        frozen, statistics, carry = (
            {name: self._to_tensor(array) for name, array in select_prefix(kind, arrays).items()}
            for kind in ("frozen", "statistics", "envs.carry")
        )
        views = parameter_views(flat_params.detach(), parameters)
        adam = Adam.after_steps(int(arrays["adam.step"]), mean, variance, self._ppo, self.uses_cuda_graphs)
        excluded = {f"carry.{c.name}" for c in self._network.carry if c.window or self._network.learns_from_sequences}
        stepped = [name for name in self._rollout_buffer if name not in excluded]
        columns = (self._rollout_buffer[name].unbind() for name in stepped)
        rows = [dict(zip(stepped, row, strict=True)) for row in zip(*columns, strict=True)]
        flat_params.requires_grad_()
        return TorchTrainState(
            self._network, flat_params, views | frozen, frozen, adam, statistics, carry, self._rollout_buffer, rows
        )

    def _to_tensor(self, array: np.ndarray) -> Tensor:
        return torch.tensor(array, device=self.device, dtype=self._dtype)

    def export(self, state: TorchTrainState) -> Arrays:
        """See `Learner.export`."""
        parameters, adam = self._spec.parameters, state.adam
        vectors = {"params": state.flat_params.detach(), "adam.mean": adam.mean, "adam.variance": adam.variance}
        trees = {kind: parameter_views(vector, parameters) for kind, vector in vectors.items()}
        trees |= {"frozen": state.frozen, "statistics": state.statistics, "envs.carry": state.carry}
        tree = {"adam.step": adam.count}
        for kind, arrays in trees.items():
            tree |= add_prefix(kind, arrays)
        declared = (*learner_array_specs(self._spec), *carry_array_specs(self._spec))
        return {array.name: np.array(tree[array.name].cpu().numpy(), array.dtype) for array in declared}


def _act(
    update_functions: UpdateFunctions, masks: bool, fixed: Any, obs: Tensor, noise_of_step: Tensor, *others: Tensor
) -> ActOutputs:
    """`NetworkSpec.act` with the policy's arrays, which `fixed` holds.

    `others` are the legal choices, if the environment masks actions (`masks`), then the episode-start flags and the
    carry, if the network has one.
    """
    (arrays,), network = fixed, update_functions.network
    action_mask, others = (others[0], others[1:]) if masks else (None, others)
    carry, episode_start = _split_carry_inputs(network, others)
    return network.act(update_functions.ops, arrays, obs, noise_of_step, carry, episode_start, action_mask)


def _values(update_functions: UpdateFunctions, fixed: Any, obs: Tensor, *others: Tensor) -> Tensor:
    """Values `[N]` by the policy's arrays, which `fixed` holds; `others` are as in `_act`."""
    (arrays,), network = fixed, update_functions.network
    values: Tensor = network.forward(update_functions.ops, arrays, obs, *_split_carry_inputs(network, others)).values
    return values


def _split_carry_inputs(network: NetworkSpec, others: Sequence[Tensor]) -> tuple[Tree, Tensor | None]:
    """The carry by name and the episode-start flags, which are the entries of `others`."""
    if not others:
        return {}, None
    episode_start, *arrays = others
    return dict(zip([array.name for array in network.carry], arrays, strict=True)), episode_start
