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

from ppo_bench.envs.base import GraphEnv, PolicyInput
from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import ArrayRole, Arrays, ArraySpec, Tree, add_prefix, select_prefix, select_roles
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.mathematics.shards import Shard
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.network import CarrySpec
from ppo_bench.runners.array_specs import learner_array_specs, rollout_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.jax_device import pick_devices, set_precision
from ppo_bench.runners.jax_mesh import REPLICATED, DeviceMesh, specs_of
from ppo_bench.runners.update_functions import UpdateFunctions, make_update_functions

INTEGERS = {"int64": "int32"}
"""Integer dtypes in JAX, by the dtype in checkpoints."""


ROLLOUT_UNROLL = 4
"""Steps of a rollout that a GPU takes in one pass of the program's loop, where they are short (docs/performance.md)."""


class TrainState(NamedTuple):
    """Arrays of learning (`learner_array_specs`), on the device."""

    params: Tree
    optimizer: optax.OptState
    frozen: Tree
    statistics: Tree
    """Statistics of the algorithm."""

    @property
    def arrays(self) -> Tree:
        """Parameters and frozen arrays."""
        return {**self.params, **self.frozen}


class JaxFunctions:
    """Functions of a `TrainingSpec`, each as computed on one device. The object is immutable."""

    def __init__(self, spec: TrainingSpec) -> None:
        self.spec, self.network, self.ppo = spec, spec.network, spec.ppo
        precision = PRECISIONS[spec.precision]
        matmul_precision = set_precision(precision)
        self.dtype = jnp.dtype(precision.parameters)
        self.devices = DeviceMesh(pick_devices(spec.device, precision, spec.devices, spec.shard))
        self.device = self.devices.first
        ops = JaxOps(self.dtype, jnp.dtype(precision.layers), spec.tuning, self.devices.axis)
        self.update_functions: UpdateFunctions = make_update_functions(spec, ops)
        self.rollout_specs = specs_of(self._rollout_array_specs(spec))
        statistics = select_prefix("statistics", specs_of(learner_array_specs(spec)))
        self.specs = TrainState(REPLICATED, REPLICATED, REPLICATED, statistics)  # type: ignore[arg-type]
        short_steps = isinstance(spec.env, GraphEnv) and spec.env.short_steps
        self.rollout_unroll = ROLLOUT_UNROLL if short_steps and self.device.platform != "cpu" else 1
        self.execution = {
            "device": str(self.device),
            "devices": spec.devices,
            "precision": precision._asdict() | {"default_matmul_precision": matmul_precision},
        } | ({"gpu": self.device.device_kind} if self.device.platform == "gpu" else {})

    def with_hyperparameters(self, own: Tree) -> JaxFunctions:
        """These functions with the hyperparameters `own`, by name, which may be arrays of the program being traced."""
        other, hp = copy.copy(self), replace(self.ppo, **own)
        other.spec, other.ppo = replace(self.spec, ppo=hp), hp
        other.update_functions = self.update_functions._replace(ppo=hp)
        return other

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> TrainState:
        """State on the devices from a dictionary that has the arrays of `learner_array_specs`."""
        self.devices.connect()
        on_device = {array.name: self._array(array, arrays[array.name]) for array in learner_array_specs(self.spec)}
        mean, variance = (select_prefix(f"adam.{moment}", on_device) for moment in ("mean", "variance"))
        params, frozen, statistics = (select_prefix(kind, on_device) for kind in ("params", "frozen", "statistics"))
        optimizer = self._optimizer(0.0).init(params)
        optimizer = optax.tree_utils.tree_set(optimizer, count=on_device["adam.step"], mu=mean, nu=variance)
        # Commits every array to its device, like a program's results. Otherwise the program would be compiled twice.
        train_state: TrainState = self.devices.put(TrainState(params, optimizer, frozen, statistics), self.specs)
        return train_state

    def reset_env_statistics(self, train_state: TrainState) -> TrainState:
        """See `Learner.reset_env_statistics`."""
        anew = select_roles(learner_array_specs(self.spec), ArrayRole.ENVIRONMENT)
        fresh = select_prefix("statistics", {array.name: self._array(array, array.default()) for array in anew})
        specs = {name: self.specs.statistics[name] for name in fresh}
        return train_state._replace(statistics={**train_state.statistics, **self.devices.put(fresh, specs)})

    def _array(self, declared: ArraySpec, array: np.ndarray) -> jax.Array:
        return jnp.asarray(array, jnp.dtype(INTEGERS.get(declared.dtype, declared.dtype)))

    def export(self, train_state: TrainState) -> Arrays:
        """Copies of the arrays of `learner_array_specs`, by name."""
        get, state = optax.tree_utils.tree_get, train_state.optimizer
        step, mean, variance = (get(state, name) for name in ("count", "mu", "nu"))
        tree = {"adam.step": step, **add_prefix("adam.mean", mean), **add_prefix("adam.variance", variance)}
        for kind in ("params", "frozen", "statistics"):
            tree |= add_prefix(kind, getattr(train_state, kind))
        own = self.devices.local_array
        return {array.name: np.array(own(tree[array.name]), array.dtype) for array in learner_array_specs(self.spec)}

    def allocate(self) -> dict[str, jax.Array]:
        """Rollout buffer of one device, filled with zeros."""
        one = replace(self.spec, shard=Shard(0, self.devices.count))
        return {
            array.name: jnp.zeros(array.shape, jnp.dtype(INTEGERS.get(array.dtype, array.dtype)))
            for array in self._rollout_array_specs(one)
        }

    def _rollout_array_specs(self, spec: TrainingSpec) -> list[ArraySpec]:
        """The arrays of the buffer; without values if a separate critic computes those of all steps at once."""
        absent = {"values"} if self.network.separate_critic else set()
        return [array for array in rollout_array_specs(spec) if array.name not in absent]

    # --- Acting -------------------------------------------------------------------------------------------------------

    def action_noise(self, seed: jax.Array, iteration: jax.Array) -> jax.Array:
        """See `UpdateFunctions.action_noise`; `seed` and `iteration` are scalars."""
        num_envs = self.update_functions.num_envs
        sizes = (self.ppo.num_steps + 1, num_envs, self.network.actions.action_dim)
        steps, envs, lanes = (jnp.arange(n, dtype=jnp.int32) for n in sizes)
        envs = envs + self._first_row
        noise_of_iteration: jax.Array = self.update_functions.action_noise(
            seed[None], iteration[None], steps, envs, lanes, self.dtype
        )
        return noise_of_iteration

    def store_initial_carry(self, rollout_buffer: Tree, carry: Tree) -> Tree:
        """The buffer with the `carry` before step 0: its windows, or all of it if learning is from sequences."""
        initial = add_prefix("carry", carry) if self.network.learns_from_sequences else {}
        for window in self.network.windows:
            name, steps = f"carry.{window.name}", window.shape[0]
            initial[name] = rollout_buffer[name].at[:steps].set(jnp.moveaxis(carry[window.name], 1, 0))
        return {**rollout_buffer, **initial}

    def window(self, rollout_buffer: Tree, window: CarrySpec, t: jax.Array) -> jax.Array:
        """Content of a window before step `t`, `[N, K, ...]`."""
        rows = jax.lax.dynamic_slice_in_dim(rollout_buffer[f"carry.{window.name}"], t, window.shape[0])
        return jnp.moveaxis(rows, 0, 1)

    def carry_after_rollout(self, rollout_buffer: Tree, carry: Tree) -> Tree:
        """Carry after a rollout: `carry` with its windows read from the buffer."""
        last = jnp.int32(self.ppo.num_steps)
        return {**carry, **{window.name: self.window(rollout_buffer, window, last) for window in self.network.windows}}

    def act(
        self,
        arrays: Tree,
        rollout_buffer: Tree,
        carry: Tree,
        noise: jax.Array,
        t: jax.Array,
        policy_input: PolicyInput,
    ) -> tuple[Tree, Tree, jax.Array]:
        """The buffer with step `t` written to row `t`, carry after the step, and actions for the inputs `policy_input`.

        Windows in the returned carry are not updated: their new rows are in the buffer.
        """
        obs, episode_start = policy_input.obs.astype(rollout_buffer["obs"].dtype), policy_input.episode_start
        if episode_start is not None:
            episode_start = episode_start.astype(self.dtype)
        windows = {window.name: self.window(rollout_buffer, window, t) for window in self.network.windows}
        before = {**carry, **windows}
        acted = self.network.act(
            self.update_functions.ops, arrays, obs, noise[t], before, episode_start, policy_input.action_mask
        )
        row = {"obs": obs, "actions": acted.actions, "logits_or_mean": acted.logits_or_mean}
        if not self.network.separate_critic:
            row["values"] = acted.values
        if policy_input.action_mask is not None:
            row["action_mask"] = policy_input.action_mask
        if not self.network.learns_from_sequences:
            row |= {f"carry.{name}": array for name, array in carry.items() if name not in windows}
        stored = {
            name: jax.lax.dynamic_update_index_in_dim(rollout_buffer[name], x.astype(rollout_buffer[name].dtype), t, 0)
            for name, x in row.items()
        }
        for window in self.network.windows:  # after the last step the row is out of range and dropped
            name = f"carry.{window.name}"
            stored[name] = rollout_buffer[name].at[t + window.shape[0]].set(acted.carry[window.name], mode="drop")
        after = {**acted.carry, **{name: carry[name] for name in windows}}
        return {**rollout_buffer, **stored}, after, acted.actions

    # --- Learning -----------------------------------------------------------------------------------------------------

    def targets(
        self, train_state: TrainState, rollout_buffer: Tree, flags: Tree, seed: jax.Array, iteration: jax.Array
    ) -> tuple[TrainState, Tree, Tree]:
        """See `UpdateFunctions.targets`."""
        keys = {"seed": seed[None], "iteration": iteration[None], "first_row": jnp.full(1, self._first_row, jnp.int32)}
        rollout = {**self._with_values(train_state.arrays, rollout_buffer), **self._cast_flags(flags), **keys}
        targets = self.update_functions.targets(train_state.arrays, train_state.statistics, rollout)
        return train_state._replace(statistics=targets.statistics), targets.batch, targets.metrics

    def _with_values(self, arrays: Tree, rollout_buffer: Tree) -> Tree:
        """The buffer with the values `[T + 1, N, ...]` of all steps, which a separate critic computes at once."""
        if not self.network.separate_critic:
            return rollout_buffer
        obs = rollout_buffer["obs"]
        flat = obs.reshape((-1, *obs.shape[2:]))
        values = self.network.forward(self.update_functions.ops, arrays, flat, {}, None).values
        return {**rollout_buffer, "values": values.reshape((*obs.shape[:2], *values.shape[1:]))}

    def warmup(self, train_state: TrainState, rollout_buffer: Tree, flags: Tree) -> TrainState:
        """See `Learner.warmup`."""
        rollout = {**self._with_values(train_state.arrays, rollout_buffer), **self._cast_flags(flags)}
        return train_state._replace(statistics=self.update_functions.warmup(train_state.statistics, rollout))

    @property
    def _first_row(self) -> Any:
        """Index of this device's first row among the rows of all devices."""
        return self.devices.index() * self.update_functions.num_envs

    def _cast_flags(self, flags: Tree) -> Tree:
        return {name: flags[name].astype(self.dtype) for name in self.update_functions.learning_arrays}

    def update(
        self, train_state: TrainState, batch: Tree, seed: jax.Array, iteration: jax.Array, learning_rate: jax.Array
    ) -> tuple[TrainState, Tree]:
        """Run all epochs and minibatches; returns means over minibatches, and the learning rate if it is adapted."""
        hp, names = self.ppo, (*self.update_functions.loss_names, "gradient_norm")
        rate = self.update_functions.learning_rate(train_state.statistics, learning_rate)
        epochs = jnp.arange(hp.update_epochs, dtype=jnp.int32)
        samples = jnp.asarray(self.update_functions.sample_indices) + self._first_row
        rows = self.update_functions.minibatch_indices(seed[None], iteration[None], epochs, samples, stable_argsort)
        minibatches = rows, self.update_functions.weights(batch, rows)

        def gradient_step(train_state: TrainState, inputs: tuple[jax.Array, jax.Array]) -> tuple[TrainState, jax.Array]:
            return self._gradient_step(train_state, self.update_functions.minibatch(batch, *inputs), rate)

        def epoch(
            carry: tuple[TrainState, jax.Array], inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[TrainState, jax.Array], Any]:
            train_state, stopped = carry
            nothing = jnp.zeros((hp.num_minibatches, len(names)), self.dtype)
            if hp.target_kl is None:  # a condition would make the host wait for the GPU
                train_state, measured = jax.lax.scan(gradient_step, train_state, inputs)
                return (train_state, stopped), (measured, ~stopped)
            passed, measured = jax.lax.cond(
                stopped, lambda: (train_state, nothing), lambda: jax.lax.scan(gradient_step, train_state, inputs)
            )
            ran = ~stopped
            stopped = stopped | (measured[-1, names.index("approx_kl")] > hp.target_kl)
            return (passed, stopped), (measured, ran)

        (train_state, _), (measured, ran) = jax.lax.scan(epoch, (train_state, jnp.asarray(False)), minibatches)
        means = dict(zip(names, jnp.sum(measured, (0, 1)) / (jnp.sum(ran) * hp.num_minibatches), strict=True))
        train_state = train_state._replace(statistics=self.update_functions.after_update(train_state.statistics, means))
        return train_state, means if rate is learning_rate else {**means, "learning_rate": rate}

    def _gradient_step(
        self, train_state: TrainState, minibatch: Tree, learning_rate: jax.Array
    ) -> tuple[TrainState, jax.Array]:
        """Do one Adam step; returns the loss's scalars and, last, the gradient norm before clipping."""

        def total(params: Tree) -> tuple[jax.Array, jax.Array]:
            loss: tuple[jax.Array, jax.Array] = self.update_functions.loss({**params, **train_state.frozen}, minibatch)
            return loss

        gradients, measured = jax.grad(total, has_aux=True)(train_state.params)
        if self.devices.count > 1:  # sums both in one reduction
            flat, unravel = ravel_pytree((gradients, measured))
            gradients, measured = unravel(self.update_functions.ops.all_reduce_sum(flat))
        norm = ppo.global_norm(jnp, jax.tree.leaves(gradients))
        optimizer = self._optimizer(learning_rate.astype(self.dtype))
        updates, state = optimizer.update(gradients, train_state.optimizer, train_state.params)
        params = optax.apply_updates(train_state.params, updates)
        return train_state._replace(params=params, optimizer=state), jnp.append(measured, norm)

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
        indices = jnp.arange(words.shape[-1], dtype=jnp.int64)
        ordered = jax.lax.sort(words.astype(jnp.int64) << 32 | indices, is_stable=False)
        return (ordered & 0xFFFFFFFF).astype(jnp.int32)
