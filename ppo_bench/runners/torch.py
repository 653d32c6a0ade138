"""`Learner` in PyTorch; its functions run eagerly, compiled, or as CUDA graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo_bench.algorithms.base import Targets
from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, Seen
from ppo_bench.mathematics.arrays import Array, Arrays, Kind, Tree, filled, named, of_kinds, under
from ppo_bench.mathematics.normalize import Across
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.network import Acted, NetworkSpec
from ppo_bench.networks.torch.ops import TorchOps, named_views
from ppo_bench.runners import torch_learning
from ppo_bench.runners.base import Problem
from ppo_bench.runners.computation import Computation, computation_of
from ppo_bench.runners.cuda_graphs import Recordable, Replayed
from ppo_bench.runners.declared import carry_arrays, learner_arrays
from ppo_bench.runners.torch_adam import Adam
from ppo_bench.runners.torch_carry import allocate, begin_rollout, remember, remembered
from ppo_bench.runners.torch_device import DEFAULT_THREADS, pick_device, set_precision, set_threads, threads_for
from ppo_bench.runners.torch_state import TorchTrainState
from ppo_bench.tuning.cores import cores_here
from ppo_bench.tuning.freed_memory import keep_freed_memory

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Transformation of a function before its first call, such as `torch.compile`."""


class TorchLearner:
    """A `Learner`; see ppo_bench/runners/learner.py."""

    def __init__(
        self,
        problem: Problem,
        num_threads: int | None,
        compiler: Compiler | None = None,
        cuda_graphs: bool | None = False,
    ) -> None:
        """`cuda_graphs=None` means CUDA graphs on a GPU and none on a CPU."""
        self._problem, self._ppo, self._network = problem, problem.ppo, problem.network
        precision = PRECISIONS[problem.precision]
        self._dtype, layers = getattr(torch, precision.parameters), getattr(torch, precision.layers)
        self.device = pick_device(problem.device, precision, problem.place)
        """Device of its tensors."""
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self.device.index or 0)  # the device on which streams and graphs are created
        if cuda_graphs and not on_gpu:
            raise ConfigError(f"framework.cudagraphs=true needs a GPU, not device={self.device}: use auto or false")
        own = (*problem.parameters, *problem.algorithm.frozen(problem.network))
        set_threads(threads_for(own, num_threads, cores_here() if problem.peers else DEFAULT_THREADS))
        self.replays = replay = on_gpu if cuda_graphs is None else cuda_graphs
        """Whether functions are recorded as CUDA graphs."""
        self.execution: Mapping[str, object] = {
            "device": str(self.device),
            "devices": problem.devices,
            "threads": torch.get_num_threads(),
            "precision": set_precision(precision),
            "cuda_graphs": replay,
            "keeps_freed_memory": not on_gpu and problem.tuning.keep_freed_memory and keep_freed_memory(),
        } | ({"gpu": torch.cuda.get_device_name(self.device)} if on_gpu else {})
        ops = TorchOps(self._dtype, layers, problem.peers)
        self.across: Across = ops.across
        """Moments over all processes, from those of this one."""
        ops.function(problem.network.module)  # before it is compiled
        self._computation = computation_of(problem, ops)
        self._memory = allocate(problem, self.device)
        self.compiles = compiler is not None
        self.compiled = compiled = compiler or (lambda function: function)
        """Transformation of functions before their first call."""
        self._envs_on_host = not isinstance(problem.env, GraphEnv)
        # On a CPU the call overhead of a compiled policy exceeds its gain: 43 against 25 microseconds for CartPole.
        act: Callable[..., Acted] = functools.partial(_act, self._computation, problem.env.masks_actions)
        act = compiled(act) if on_gpu else act
        targets = functools.partial(torch_learning.targets, self._computation)
        gradient = functools.partial(torch_learning.clipped_gradient, self._computation, problem.parameters)
        learn = functools.partial(torch_learning.learn, compiled(gradient))
        self._noise: Recordable = Replayed(self._action_noise) if replay else self._action_noise
        # A rollout of environments on the device is recorded as a whole (ppo_bench/runners/torch_envs.py).
        recorded_alone = replay and not (isinstance(problem.env, GraphEnv) and not problem.env.same_step)
        self._policy: Recordable = Replayed(act) if recorded_alone else act
        values: Callable[..., Tensor] = functools.partial(_values, self._computation)
        values = compiled(values) if on_gpu else values
        self._values: Recordable = Replayed(values) if recorded_alone else values
        self._targets: Recordable = Replayed(targets) if replay else targets
        self._learn: Recordable = Replayed(learn, changed=torch_learning.learnt_by) if replay else learn
        first_row = problem.part.index * problem.num_envs
        self._steps, self._env_ids, self._lanes, self._epochs, self._samples, self._first_row = (
            torch.from_numpy(np.asarray(numbers, np.int32)).to(self.device)
            for numbers in (
                np.arange(self._ppo.num_steps + 1),
                problem.first_env + np.arange(problem.num_envs),
                np.arange(self._network.actions.lanes),
                np.arange(self._ppo.update_epochs),
                first_row + self._computation.samples,
                [first_row],
            )
        )

    # --- An iteration -------------------------------------------------------------------------------------------------

    def acting(self) -> AbstractContextManager[object]:
        """See `Learner.acting`."""
        return torch.inference_mode()

    @torch.inference_mode()
    def begin(self, state: TorchTrainState, seed: int, iteration: int) -> TorchTrainState:
        """See `Learner.begin`."""
        state.noise = self._noise((), self._scalar(seed), self._scalar(iteration)).unbind()
        begin_rollout(self._network, state.carry, state.memory)
        return state

    def act(self, state: TorchTrainState, t: int, seen: Seen) -> tuple[TorchTrainState, Array]:
        """See `Learner.act`."""
        row = state.rows[t]
        # Moves observations in the host's memory layout and rearranges them on the device, where channels are last.
        # EnvPool's channels are first.
        row["obs"].copy_(self._to_device(seen.obs))
        others: list[Tensor] = []
        if seen.legal is not None:
            row["legal"].copy_(torch.from_numpy(seen.legal))
            others.append(row["legal"])
        if state.carry:
            others.append(self._to_device(seen.start).to(self._dtype))
            others += remembered(self._network, state.carry, state.memory, t)
        acted: Acted = self._policy((state.arrays,), row["obs"], state.noise[t], *others)
        row["actions"].copy_(acted.actions)
        row["heads"].copy_(acted.head)
        row["values"].copy_(acted.values)
        if state.carry:
            over = t == self._ppo.num_steps
            remember(self._network, state.carry, state.memory, state.rows, t, acted.carry, over)
        return state, acted.actions.cpu().numpy() if self._envs_on_host else acted.actions

    def values(self, state: TorchTrainState, t: int, obs: Tensor) -> Tensor:
        """Values `[N]` of observations `[N, ...]` that follow step `t` of the rollout and that no action follows.

        The carry is not advanced.
        """
        inputs = [obs.to(state.rows[t]["obs"].dtype)]
        if state.carry:
            inputs.append(torch.zeros(len(obs), dtype=self._dtype, device=self.device))
            inputs += remembered(self._network, state.carry, state.memory, t + 1)
        values: Tensor = self._values((state.arrays,), *inputs)
        return values

    def _to_device(self, array: Array) -> Tensor:
        """An array of the environments, from the host unless they are on the device."""
        return torch.from_numpy(array).to(self.device) if self._envs_on_host else array

    def _action_noise(self, fixed: Any, *key: Tensor) -> Any:
        """`Computation.action_noise`; `key` are the seed and the iteration."""
        seed, iteration = key
        return self._computation.action_noise(seed, iteration, self._steps, self._env_ids, self._lanes, self._dtype)

    @torch.no_grad()
    def warmed(self, state: TorchTrainState, flags: Tree) -> TorchTrainState:
        """See `Learner.warmed`."""
        seen = state.memory | dict(zip(self._computation.flags, self._on_device(flags), strict=True))
        state.statistics = dict(self._computation.warmed(state.statistics, seen))
        return state

    def restart(self, state: TorchTrainState) -> TorchTrainState:
        """See `Learner.restart`."""
        anew = filled(of_kinds(learner_arrays(self._problem), Kind.ENVIRONMENT))
        state.statistics |= {name: self._tensor(array) for name, array in under("statistics", anew).items()}
        return state

    def _on_device(self, flags: Tree) -> list[Tensor]:
        return [self._to_device(flags[name]).to(self._dtype) for name in self._computation.flags]

    @torch.no_grad()
    def update(
        self, state: TorchTrainState, flags: Tree, seed: int, iteration: int, learning_rate: float
    ) -> tuple[TorchTrainState, dict[str, float]]:
        """See `Learner.update`."""
        hp, names = self._ppo, self._computation.loss_names
        keys = self._scalar(seed), self._scalar(iteration)
        targets = self._learn_targets(state, flags, keys)
        batch, rate = targets.batch, self._computation.learning_rate(state.statistics, learning_rate)
        state.adam.learning_rate.fill_(rate)
        measured: list[Tensor] = []
        minibatches = self._computation.minibatches(*keys, self._epochs, self._samples)
        for epoch in zip(minibatches, self._computation.weights(batch, minibatches), strict=True):
            for inputs in zip(*epoch, strict=True):
                measured.append(self._learn((state, batch), *inputs).clone())
            if hp.target_kl is not None and measured[-1][names.index("approx_kl")] > hp.target_kl:
                break
        means = torch.stack(measured).mean(0)
        state.statistics = dict(self._computation.after_update(state.statistics, dict(zip(names, means, strict=False))))
        numbers = torch.cat([means, *(value.reshape(1) for value in targets.metrics.values())])  # one copy to the host
        metrics = dict(zip((*names, "gradient_norm", *targets.metrics), numbers.tolist(), strict=True))
        return state, metrics | {"learning_rate": float(rate)}

    @torch.no_grad()
    def _learn_targets(self, state: TorchTrainState, flags: Tree, keys: tuple[Tensor, Tensor]) -> Targets:
        """The targets of the rollout, whose statistics become those of `state`; `keys` are the seed and iteration."""
        statistics = (state.statistics[name] for name in self._computation.statistics)
        inputs = *self._on_device(flags), *keys, self._first_row, *statistics
        targets: Targets = self._targets((state.arrays, state.memory), *inputs)
        state.statistics = {name: array.clone() for name, array in targets.statistics.items()}
        return targets

    def _scalar(self, value: int) -> Tensor:
        return torch.full((1,), value, dtype=torch.int32, device=self.device)

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> TorchTrainState:
        """See `Learner.load`."""
        parameters = self._problem.parameters
        learnt, mean, variance = (
            self._tensor(np.concatenate([arrays[f"{kind}.{p.name}"].ravel() for p in parameters]))
            for kind in ("params", "adam.mean", "adam.variance")
        )
        frozen, statistics, carry = (
            {name: self._tensor(array) for name, array in under(kind, arrays).items()}
            for kind in ("frozen", "statistics", "envs.carry")
        )
        views = named_views(learnt.detach(), parameters)
        adam = self._adam(int(arrays["adam.step"]), mean, variance)
        apart = {f"carry.{c.name}" for c in self._network.carry if c.window or self._network.sequences}
        stepped = [name for name in self._memory if name not in apart]
        columns = (self._memory[name].unbind() for name in stepped)
        rows = [dict(zip(stepped, row, strict=True)) for row in zip(*columns, strict=True)]
        learnt.requires_grad_()
        return TorchTrainState(learnt, views | frozen, frozen, adam, statistics, carry, self._memory, rows)

    def _adam(self, steps: int, mean: Tensor, variance: Tensor) -> Adam:
        """Adam's state after `steps` steps. The learning rate is 0 here and set before every update."""
        # The fused GPU kernel reads the learning rate as float32, which is too coarse for float64 parameters.
        fused = self.device.type != "cuda" or self._dtype != torch.float64
        coarse = self.device.type == "cuda" and fused
        learning_rate = torch.zeros((), dtype=torch.float32 if coarse else torch.float64, device=self.device)
        # The fused kernels require a float32 count. Unfused Adam computes powers in the count's own dtype.
        count = torch.tensor(float(steps), dtype=torch.float32 if fused else torch.float64, device=self.device)
        capturable = self.replays or not fused
        return Adam(mean, variance, count, learning_rate, self._ppo.adam_eps, fused, capturable, self._ppo.weight_decay)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.tensor(array, device=self.device, dtype=self._dtype)

    def export(self, state: TorchTrainState) -> Arrays:
        """See `Learner.export`."""
        parameters, adam = self._problem.parameters, state.adam
        vectors = {"params": state.learnt.detach(), "adam.mean": adam.mean, "adam.variance": adam.variance}
        trees = {kind: named_views(vector, parameters) for kind, vector in vectors.items()}
        trees |= {"frozen": state.frozen, "statistics": state.statistics, "envs.carry": state.carry}
        tree = {"adam.step": adam.count}
        for kind, arrays in trees.items():
            tree |= named(kind, arrays)
        declared = (*learner_arrays(self._problem), *carry_arrays(self._problem))
        return {array.name: np.array(tree[array.name].cpu().numpy(), array.dtype) for array in declared}


def _act(
    computation: Computation, masks: bool, fixed: Any, obs: Tensor, noise_of_step: Tensor, *others: Tensor
) -> Acted:
    """`NetworkSpec.act` with the policy's arrays, which `fixed` holds.

    `others` are the legal choices, if the environment masks actions (`masks`), then the start flags and the carry, if
    the network has one.
    """
    (arrays,), network = fixed, computation.network
    legal, others = (others[0], others[1:]) if masks else (None, others)
    carry, start = _remembered(network, others)
    return network.act(computation.ops, arrays, obs, noise_of_step, carry, start, legal)


def _values(computation: Computation, fixed: Any, obs: Tensor, *others: Tensor) -> Tensor:
    """Values `[N]` by the policy's arrays, which `fixed` holds; `others` are as in `_act`."""
    (arrays,), network = fixed, computation.network
    values: Tensor = network.forward(computation.ops, arrays, obs, *_remembered(network, others)).values
    return values


def _remembered(network: NetworkSpec, others: Sequence[Tensor]) -> tuple[Tree, Tensor | None]:
    """The carry by name, and the start flags, from the start flags and the arrays of the carry."""
    if not others:
        return {}, None
    start, *arrays = others
    return dict(zip([array.name for array in network.carry], arrays, strict=True)), start
