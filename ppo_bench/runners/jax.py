"""`Learner` in JAX for environments on the host: a compiled policy step, and targets and update in one program."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import Arrays, Tree, add_prefix, select_prefix
from ppo_bench.mathematics.shards import Shard
from ppo_bench.runners.array_specs import carry_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.jax_device import without_long_integers
from ppo_bench.runners.jax_functions import JaxFunctions, TrainState
from ppo_bench.runners.jax_mesh import REPLICATED, sharded_along


@dataclass
class JaxLearnerState:
    """State of the learner; each step donates the arrays of `rollout_buffer` to the next."""

    train_state: TrainState
    rollout_buffer: Tree
    """Rollout buffer; see `JaxFunctions.allocate`."""
    carry: Tree
    """Carry (recurrent state) of the network, `[N, ...]`."""
    arrays: Tree
    """Parameters and frozen arrays of the policy in this rollout."""
    noise: jax.Array | None = None
    """Action noise of this iteration, `[T + 1, N, A]`."""


class JaxLearner:
    """A `Learner`; see ppo_bench/runners/host.py."""

    def __init__(self, spec: TrainingSpec) -> None:
        self._spec, self._functions = spec, JaxFunctions(spec)
        functions, devices = self._functions, self._functions.devices
        self.execution: Mapping[str, object] = functions.execution
        train_state, rollout_buffer = functions.specs, functions.rollout_specs
        rows, steps = sharded_along(0), sharded_along(1)
        program = devices.jit
        self._noise = program(functions.action_noise, (REPLICATED, REPLICATED), steps)
        self._act = program(
            self._act_for_host,
            (REPLICATED, rollout_buffer, rows, steps, REPLICATED, rows),
            (rollout_buffer, rows, rows),
            donated=1,
        )
        self._learn = program(
            self._targets_and_update,
            (train_state, rollout_buffer, steps, REPLICATED, REPLICATED, REPLICATED),
            (train_state, REPLICATED),
            donated=0,
        )
        self._warmup = program(functions.warmup, (train_state, rollout_buffer, steps), train_state)
        self._store_initial_carry = program(
            functions.store_initial_carry, (rollout_buffer, rows), rollout_buffer, donated=0
        )
        self._carry_after_rollout = program(functions.carry_after_rollout, (rollout_buffer, rows), rows)
        self._allocate = program(functions.allocate, (), rollout_buffer)
        env_axes = functions.update_functions.env_axes
        self._split = jax.jit(functools.partial(_split, env_axes), static_argnums=0)
        self._join = jax.jit(functools.partial(_join, env_axes))
        self._flags = self._functions.update_functions.learning_arrays
        self._actions_type = np.int64 if spec.network.discrete else None

    # --- An iteration -------------------------------------------------------------------------------------------------

    def acting_context(self) -> AbstractContextManager[object]:
        """See `Learner.acting_context`."""
        return jax.default_device(self._functions.device)

    def begin_rollout(self, state: JaxLearnerState, seed: int, iteration: int) -> JaxLearnerState:
        """See `Learner.begin_rollout`."""
        with self.acting_context():
            state.noise = self._noise(np.int32(seed), np.int32(iteration))
        state.arrays = state.train_state.arrays
        if self._spec.network.carry:
            # A copy of the carry, which is also an argument of the policy's steps.
            state.rollout_buffer = self._store_initial_carry(state.rollout_buffer, jax.tree.map(jnp.copy, state.carry))
        return state

    def act(self, state: JaxLearnerState, t: int, policy_input: PolicyInput) -> tuple[JaxLearnerState, np.ndarray]:
        """See `Learner.act`."""
        policy_input = PolicyInput(
            without_long_integers(policy_input.obs),
            action_mask=policy_input.action_mask,
            episode_start=policy_input.episode_start if state.carry else None,
        )
        if self._functions.devices.count > 1:
            policy_input = self._functions.devices.put(policy_input, sharded_along(0))
        state.rollout_buffer, carry, actions = self._act(
            state.arrays, state.rollout_buffer, state.carry, state.noise, np.int32(t), policy_input
        )
        if state.carry:
            state.carry = (
                carry if t < self._spec.ppo.num_steps else self._carry_after_rollout(state.rollout_buffer, state.carry)
            )
        # A writable copy: some environments modify actions.
        return state, np.array(self._functions.devices.local_array(actions), self._actions_type)

    def split(self, state: JaxLearnerState, shards: Sequence[Shard]) -> list[JaxLearnerState]:
        """See `Learner.split`."""
        parts = self._split(tuple(shards), state.rollout_buffer, state.carry, state.noise)
        state.rollout_buffer = {}  # frees its memory until `join`
        return [replace(state, rollout_buffer=own, carry=carry, noise=noise) for own, carry, noise in parts]

    def join(self, state: JaxLearnerState, parts: Sequence[JaxLearnerState]) -> JaxLearnerState:
        """See `Learner.join`."""
        state.rollout_buffer, state.carry = self._join([(part.rollout_buffer, part.carry) for part in parts])
        return state

    def _act_for_host(self, *inputs: Any) -> tuple[Tree, Tree, jax.Array]:
        """`JaxFunctions.act` with the actions in the host's RAM: reading them waits for the device once, not twice."""
        rollout_buffer, carry, actions = self._functions.act(*inputs)
        return rollout_buffer, carry, jax.device_put(actions, jax.memory.Space.Host)

    def warmup(self, state: JaxLearnerState, flags: Tree) -> JaxLearnerState:
        """See `Learner.warmup`."""
        with self.acting_context():
            state.train_state = self._warmup(state.train_state, state.rollout_buffer, self._to_devices(flags))
        return state

    def _to_devices(self, flags: Tree) -> Tree:
        """The flags that learning takes, `[T, N]`, divided among several devices."""
        own = {name: flags[name] for name in self._flags}
        return own if self._functions.devices.count == 1 else self._functions.devices.put(own, sharded_along(1))

    def reset_env_statistics(self, state: JaxLearnerState) -> JaxLearnerState:
        """See `Learner.reset_env_statistics`."""
        state.train_state = self._functions.reset_env_statistics(state.train_state)
        return state

    def update(
        self, state: JaxLearnerState, flags: Tree, seed: int, iteration: int, learning_rate: float
    ) -> tuple[JaxLearnerState, dict[str, float]]:
        """See `Learner.update`."""
        placed = self._to_devices(flags)
        with self.acting_context():
            state.train_state, measured = self._learn(
                state.train_state, state.rollout_buffer, placed, np.int32(seed), np.int32(iteration), learning_rate
            )
        return state, {name: float(value) for name, value in self._functions.devices.fetch(measured).items()}

    def _targets_and_update(
        self, train_state: TrainState, rollout_buffer: Tree, flags: Tree, seed: Any, iteration: Any, learning_rate: Any
    ) -> tuple[TrainState, Tree]:
        train_state, batch, measured = self._functions.targets(train_state, rollout_buffer, flags, seed, iteration)
        train_state, losses = self._functions.update(train_state, batch, seed, iteration, learning_rate)
        return train_state, {**losses, **measured}

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> JaxLearnerState:
        """See `Learner.load`."""
        carry = {
            name: jnp.asarray(array, self._functions.dtype)
            for name, array in select_prefix("envs.carry", arrays).items()
        }
        carry = self._functions.devices.put(carry, sharded_along(0))
        with self.acting_context():
            rollout_buffer = self._functions.devices.put(self._allocate(), self._functions.rollout_specs)
        train_state = self._functions.load(arrays)
        return JaxLearnerState(train_state, rollout_buffer, carry, train_state.arrays)

    def export(self, state: JaxLearnerState) -> Arrays:
        """See `Learner.export`."""
        carry = add_prefix("envs.carry", state.carry)
        own = self._functions.devices.local_array
        carried = {array.name: np.array(own(carry[array.name])) for array in carry_array_specs(self._spec)}
        return self._functions.export(state.train_state) | carried


def _split(
    env_axes: Mapping[str, int], shards: tuple[Shard, ...], rollout_buffer: Tree, carry: Tree, noise: jax.Array
) -> list[tuple[Tree, Tree, jax.Array]]:
    """The rollout buffer, carry and noise of each of these parts of the environments."""

    def own(shard: Shard, x: jax.Array, axis: int) -> jax.Array:
        first, size = shard.first(x.shape[axis]), shard.size(x.shape[axis])
        return jax.lax.slice_in_dim(x, first, first + size, axis=axis)

    return [
        (
            {name: own(shard, x, env_axes[name]) for name, x in rollout_buffer.items()},
            {name: own(shard, x, 0) for name, x in carry.items()},
            own(shard, noise, 1),
        )
        for shard in shards
    ]


def _join(env_axes: Mapping[str, int], parts: Sequence[tuple[Tree, Tree]]) -> tuple[Tree, Tree]:
    """The rollout buffer and carry of all environments."""
    buffers, carries = zip(*parts, strict=True)
    whole = {name: jnp.concatenate([own[name] for own in buffers], env_axes[name]) for name in buffers[0]}
    return whole, {name: jnp.concatenate([own[name] for own in carries]) for name in carries[0]}
