"""Acting and learning in JAX as pure functions, compiled separately or as part of a program with the environments."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from ppo_bench.envs.base import GraphEnv, Seen
from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Arrays, Declared, Kind, Tree, named, of_kinds, under
from ppo_bench.mathematics.parts import Part
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.network import Carry
from ppo_bench.runners.base import Problem
from ppo_bench.runners.computation import Computation, computation_of
from ppo_bench.runners.declared import learner_arrays, memory_arrays
from ppo_bench.runners.jax_device import pick_devices, set_precision
from ppo_bench.runners.jax_mesh import SAME, Devices, specs_of

INTEGERS = {"int64": "int32"}
"""Integer dtypes in JAX, by the dtype in checkpoints."""


STEPS_AT_ONCE = 4
"""Steps of a rollout that a GPU takes in one pass of the program's loop, where they are short (docs/performance.md)."""


class TrainState(NamedTuple):
    """Arrays of learning (`learner_arrays`), on the device."""

    params: Tree
    optimizer: optax.OptState
    frozen: Tree
    statistics: Tree
    """Statistics of the algorithm."""

    @property
    def arrays(self) -> Tree:
        """Parameters and frozen arrays."""
        return {**self.params, **self.frozen}


class Learning:
    """Functions of a problem, each as computed on one device. The object is immutable."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.network, self.ppo = problem, problem.network, problem.ppo
        precision = PRECISIONS[problem.precision]
        matmul_precision = set_precision(precision)
        self.dtype = jnp.dtype(precision.parameters)
        self.devices = Devices(pick_devices(problem.device, precision, problem.devices, problem.part))
        self.device = self.devices.first
        ops = JaxOps(self.dtype, jnp.dtype(precision.layers), problem.tuning, self.devices.axis)
        self.computation: Computation = computation_of(problem, ops)
        self.memory_specs = specs_of(self._memory_arrays(problem))
        statistics = under("statistics", specs_of(learner_arrays(problem)))
        self.specs = TrainState(SAME, SAME, SAME, statistics)  # type: ignore[arg-type]
        short_steps = isinstance(problem.env, GraphEnv) and problem.env.short_steps
        self.steps_at_once = STEPS_AT_ONCE if short_steps and self.device.platform != "cpu" else 1
        self.execution = {
            "device": str(self.device),
            "devices": problem.devices,
            "precision": precision._asdict() | {"default_matmul_precision": matmul_precision},
        } | ({"gpu": self.device.device_kind} if self.device.platform == "gpu" else {})

    def with_hyperparameters(self, own: Tree) -> Learning:
        """These functions with the hyperparameters `own`, by name, which may be arrays of the program being traced."""
        other, hp = copy.copy(self), replace(self.ppo, **own)
        other.problem, other.ppo = replace(self.problem, ppo=hp), hp
        other.computation = self.computation._replace(ppo=hp)
        return other

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> TrainState:
        """State on the devices from a dictionary that has `learner_arrays`."""
        self.devices.connect()
        on_device = {array.name: self._array(array, arrays[array.name]) for array in learner_arrays(self.problem)}
        mean, variance = (under(f"adam.{moment}", on_device) for moment in ("mean", "variance"))
        params, frozen, statistics = (under(kind, on_device) for kind in ("params", "frozen", "statistics"))
        optimizer = self._optimizer(0.0).init(params)
        optimizer = optax.tree_utils.tree_set(optimizer, count=on_device["adam.step"], mu=mean, nu=variance)
        # Commits every array to its device, like a program's results. Otherwise the program would be compiled twice.
        learnt: TrainState = self.devices.put(TrainState(params, optimizer, frozen, statistics), self.specs)
        return learnt

    def restart(self, learnt: TrainState) -> TrainState:
        """See `Learner.restart`."""
        anew = of_kinds(learner_arrays(self.problem), Kind.ENVIRONMENT)
        fresh = under("statistics", {array.name: self._array(array, array.filled()) for array in anew})
        specs = {name: self.specs.statistics[name] for name in fresh}
        return learnt._replace(statistics={**learnt.statistics, **self.devices.put(fresh, specs)})

    def _array(self, declared: Declared, array: np.ndarray) -> jax.Array:
        return jnp.asarray(array, jnp.dtype(INTEGERS.get(declared.dtype, declared.dtype)))

    def export(self, learnt: TrainState) -> Arrays:
        """Copies of the `learner_arrays`, by name."""
        step, mean, variance = (optax.tree_utils.tree_get(learnt.optimizer, name) for name in ("count", "mu", "nu"))
        tree = {"adam.step": step, **named("adam.mean", mean), **named("adam.variance", variance)}
        for kind in ("params", "frozen", "statistics"):
            tree |= named(kind, getattr(learnt, kind))
        own = self.devices.own
        return {array.name: np.array(own(tree[array.name]), array.dtype) for array in learner_arrays(self.problem)}

    def allocate(self) -> dict[str, jax.Array]:
        """Rollout memory of one device, filled with zeros."""
        one = replace(self.problem, part=Part(0, self.devices.count))
        return {
            array.name: jnp.zeros(array.shape, jnp.dtype(INTEGERS.get(array.dtype, array.dtype)))
            for array in self._memory_arrays(one)
        }

    def _memory_arrays(self, problem: Problem) -> list[Declared]:
        """The memory's arrays; without values if a separate critic computes those of all steps at once."""
        absent = {"values"} if self.network.separate_critic else set()
        return [array for array in memory_arrays(problem) if array.name not in absent]

    # --- Acting -------------------------------------------------------------------------------------------------------

    def action_noise(self, seed: jax.Array, iteration: jax.Array) -> jax.Array:
        """See `Computation.action_noise`; `seed` and `iteration` are scalars."""
        num_envs = self.ppo.num_envs // self.devices.count
        sizes = (self.ppo.num_steps + 1, num_envs, self.network.actions.lanes)
        steps, envs, lanes = (jnp.arange(n, dtype=jnp.int32) for n in sizes)
        envs = envs + self.devices.index() * num_envs
        noise_of_iteration: jax.Array = self.computation.action_noise(
            seed[None], iteration[None], steps, envs, lanes, self.dtype
        )
        return noise_of_iteration

    def remember(self, memory: Tree, carry: Tree) -> Tree:
        """Memory with the `carry` before the first step: its windows, and all of it if learning is from sequences."""
        begun = named("carry", carry) if self.network.sequences else {}
        for window in self.network.windows:
            name, steps = f"carry.{window.name}", window.shape[0]
            begun[name] = memory[name].at[:steps].set(jnp.moveaxis(carry[window.name], 1, 0))
        return {**memory, **begun}

    def window(self, memory: Tree, window: Carry, t: jax.Array) -> jax.Array:
        """Content of a window before step `t`, `[N, K, ...]`."""
        rows = jax.lax.dynamic_slice_in_dim(memory[f"carry.{window.name}"], t, window.shape[0])
        return jnp.moveaxis(rows, 0, 1)

    def carried(self, memory: Tree, carry: Tree) -> Tree:
        """Carry after a rollout: `carry` with its windows read from the memory."""
        last = jnp.int32(self.ppo.num_steps)
        return {**carry, **{window.name: self.window(memory, window, last) for window in self.network.windows}}

    def act(
        self,
        arrays: Tree,
        memory: Tree,
        carry: Tree,
        noise: jax.Array,
        t: jax.Array,
        seen: Seen,
    ) -> tuple[Tree, Tree, jax.Array]:
        """Memory with step `t` written to row `t`, carry after the step, and actions for the inputs `seen`.

        Windows in the returned carry are not updated: their new rows are in the memory.
        """
        obs, start = seen.obs.astype(memory["obs"].dtype), seen.start
        if start is not None:
            start = start.astype(self.dtype)
        windows = {window.name: self.window(memory, window, t) for window in self.network.windows}
        before = {**carry, **windows}
        acted = self.network.act(self.computation.ops, arrays, obs, noise[t], before, start, seen.legal)
        row = {"obs": obs, "actions": acted.actions, "heads": acted.head}
        if not self.network.separate_critic:
            row["values"] = acted.values
        if seen.legal is not None:
            row["legal"] = seen.legal
        if not self.network.sequences:
            row |= {f"carry.{name}": array for name, array in carry.items() if name not in windows}
        stored = {
            name: jax.lax.dynamic_update_index_in_dim(memory[name], x.astype(memory[name].dtype), t, 0)
            for name, x in row.items()
        }
        for window in self.network.windows:  # after the last step the row is out of range and dropped
            name = f"carry.{window.name}"
            stored[name] = memory[name].at[t + window.shape[0]].set(acted.carry[window.name], mode="drop")
        after = {**acted.carry, **{name: carry[name] for name in windows}}
        return {**memory, **stored}, after, acted.actions

    # --- Learning -----------------------------------------------------------------------------------------------------

    def targets(
        self, learnt: TrainState, memory: Tree, flags: Tree, seed: jax.Array, iteration: jax.Array
    ) -> tuple[TrainState, Tree, Tree]:
        """See `Learner.targets`."""
        keys = {"seed": seed[None], "iteration": iteration[None], "first_row": jnp.full(1, self._first_row, jnp.int32)}
        rollout = {**self._with_values(learnt.arrays, memory), **self._floats(flags), **keys}
        targets = self.computation.targets(learnt.arrays, learnt.statistics, rollout)
        return learnt._replace(statistics=targets.statistics), targets.batch, targets.metrics

    def _with_values(self, arrays: Tree, memory: Tree) -> Tree:
        """The memory with the values `[T + 1, N, ...]` of all steps, which a separate critic computes at once."""
        if not self.network.separate_critic:
            return memory
        obs = memory["obs"]
        flat = obs.reshape((-1, *obs.shape[2:]))
        values = self.network.forward(self.computation.ops, arrays, flat, {}, None).values
        return {**memory, "values": values.reshape((*obs.shape[:2], *values.shape[1:]))}

    def warmed(self, learnt: TrainState, memory: Tree, flags: Tree) -> TrainState:
        """See `Learner.warmed`."""
        rollout = {**self._with_values(learnt.arrays, memory), **self._floats(flags)}
        return learnt._replace(statistics=self.computation.warmed(learnt.statistics, rollout))

    @property
    def _first_row(self) -> Any:
        """Index of this device's first row among the rows of all devices."""
        return self.devices.index() * self.computation.rows

    def _floats(self, flags: Tree) -> Tree:
        return {name: flags[name].astype(self.dtype) for name in self.computation.flags}

    def update(
        self, learnt: TrainState, batch: Tree, seed: jax.Array, iteration: jax.Array, learning_rate: jax.Array
    ) -> tuple[TrainState, Tree]:
        """Run all epochs and minibatches; returns means over minibatches, and the learning rate if it is adapted."""
        hp, names = self.ppo, (*self.computation.loss_names, "gradient_norm")
        rate = self.computation.learning_rate(learnt.statistics, learning_rate)
        epochs = jnp.arange(hp.update_epochs, dtype=jnp.int32)
        samples = jnp.asarray(self.computation.samples) + self._first_row
        rows = self.computation.minibatches(seed[None], iteration[None], epochs, samples, stable_argsort)
        minibatches = rows, self.computation.weights(batch, rows)

        def gradient_step(learnt: TrainState, inputs: tuple[jax.Array, jax.Array]) -> tuple[TrainState, jax.Array]:
            return self._gradient_step(learnt, self.computation.minibatch(batch, *inputs), rate)

        def epoch(
            carry: tuple[TrainState, jax.Array], inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[TrainState, jax.Array], Any]:
            learnt, stopped = carry
            nothing = jnp.zeros((hp.num_minibatches, len(names)), self.dtype)
            if hp.target_kl is None:  # a condition would make the host wait for the GPU
                learnt, measured = jax.lax.scan(gradient_step, learnt, inputs)
                return (learnt, stopped), (measured, ~stopped)
            passed, measured = jax.lax.cond(
                stopped, lambda: (learnt, nothing), lambda: jax.lax.scan(gradient_step, learnt, inputs)
            )
            ran = ~stopped
            stopped = stopped | (measured[-1, names.index("approx_kl")] > hp.target_kl)
            return (passed, stopped), (measured, ran)

        (learnt, _), (measured, ran) = jax.lax.scan(epoch, (learnt, jnp.asarray(False)), minibatches)
        means = dict(zip(names, jnp.sum(measured, (0, 1)) / (jnp.sum(ran) * hp.num_minibatches), strict=True))
        learnt = learnt._replace(statistics=self.computation.after_update(learnt.statistics, means))
        return learnt, means if rate is learning_rate else {**means, "learning_rate": rate}

    def _gradient_step(
        self, learnt: TrainState, minibatch: Tree, learning_rate: jax.Array
    ) -> tuple[TrainState, jax.Array]:
        """Do one Adam step; returns the loss's scalars and, last, the gradient norm before clipping."""

        def total(params: Tree) -> tuple[jax.Array, jax.Array]:
            loss: tuple[jax.Array, jax.Array] = self.computation.loss({**params, **learnt.frozen}, minibatch)
            return loss

        gradients, measured = jax.grad(total, has_aux=True)(learnt.params)
        if self.devices.count > 1:  # sums both in one reduction
            flat, unravel = ravel_pytree((gradients, measured))
            gradients, measured = unravel(self.computation.ops.total(flat))
        norm = ppo.global_norm(jnp, jax.tree.leaves(gradients))
        optimizer = self._optimizer(learning_rate.astype(self.dtype))
        updates, state = optimizer.update(gradients, learnt.optimizer, learnt.params)
        params = optax.apply_updates(learnt.params, updates)
        return learnt._replace(params=params, optimizer=state), jnp.append(measured, norm)

    def _optimizer(self, learning_rate: jax.Array | float) -> optax.GradientTransformation:
        """Clipping of the gradient's norm, then Adam, or AdamW with weight decay."""
        hp = self.ppo
        adam = optax.adam(learning_rate, eps=hp.adam_eps)
        if hp.weight_decay:
            adam = optax.adamw(learning_rate, eps=hp.adam_eps, weight_decay=hp.weight_decay)
        return optax.chain(optax.clip_by_global_norm(hp.max_grad_norm), adam)


def stable_argsort(_: Any, words: jax.Array) -> jax.Array:
    """`noise.stable_argsort` of int32 `words`, by sorting int64 numbers of a word (high bits) and its index (low bits).

    On a CPU, `jnp.argsort` is 4 times slower, since XLA sorts pairs (docs/performance.md).
    """
    with jax.enable_x64(True):
        places = jnp.arange(words.shape[-1], dtype=jnp.int64)
        ordered = jax.lax.sort(words.astype(jnp.int64) << 32 | places, is_stable=False)
        return (ordered & 0xFFFFFFFF).astype(jnp.int32)
