"""`Learner` in JAX for environments on the host: a compiled policy step, and targets and update in one program."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.envs.base import Seen
from ppo_bench.mathematics.arrays import Arrays, Tree, named, under
from ppo_bench.runners.base import Problem
from ppo_bench.runners.declared import carry_arrays
from ppo_bench.runners.jax_device import without_long_integers
from ppo_bench.runners.jax_learning import Learning, TrainState
from ppo_bench.runners.jax_mesh import SAME, along


@dataclass
class JaxLearnerState:
    """State of the learner; each step donates the buffers of `memory` to the next."""

    learnt: TrainState
    memory: Tree
    """Rollout memory; see `Learning.allocate`."""
    carry: Tree
    """Carry (recurrent state) of the network, `[N, ...]`."""
    arrays: Tree
    """Parameters and frozen arrays of the policy in this rollout."""
    noise: jax.Array | None = None
    """Action noise of this iteration, `[T + 1, N, A]`."""


class JaxLearner:
    """A `Learner`; see ppo_bench/runners/learner.py."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._learning = problem, Learning(problem)
        learning, devices = self._learning, self._learning.devices
        self.execution: Mapping[str, object] = learning.execution
        learnt, memory, rows, steps = learning.specs, learning.memory_specs, along(0), along(1)
        program = devices.program
        self._noise = program(learning.action_noise, (SAME, SAME), steps)
        self._act = program(
            self._act_for_host, (SAME, memory, rows, steps, SAME, rows), (memory, rows, rows), donated=1
        )
        self._learn = program(
            self._targets_and_update, (learnt, memory, steps, SAME, SAME, SAME), (learnt, SAME), donated=0
        )
        self._warmed = program(learning.warmed, (learnt, memory, steps), learnt)
        self._remember = program(learning.remember, (memory, rows), memory, donated=0)
        self._carried = program(learning.carried, (memory, rows), rows)
        self._allocate = program(learning.allocate, (), memory)
        self._flags = self._learning.computation.flags
        self._actions_type = np.int64 if problem.network.discrete else None

    # --- An iteration -------------------------------------------------------------------------------------------------

    def acting(self) -> AbstractContextManager[object]:
        """See `Learner.acting`."""
        return jax.default_device(self._learning.device)

    def begin(self, state: JaxLearnerState, seed: int, iteration: int) -> JaxLearnerState:
        """See `Learner.begin`."""
        with self.acting():
            state.noise = self._noise(np.int32(seed), np.int32(iteration))
        state.arrays = state.learnt.arrays
        if self._problem.network.sequences or self._problem.network.windows:
            # A copy of the carry, which is also an argument of the policy's steps.
            state.memory = self._remember(state.memory, jax.tree.map(jnp.copy, state.carry))
        return state

    def act(self, state: JaxLearnerState, t: int, seen: Seen) -> tuple[JaxLearnerState, np.ndarray]:
        """See `Learner.act`."""
        seen = Seen(without_long_integers(seen.obs), legal=seen.legal, start=seen.start if state.carry else None)
        if self._learning.devices.count > 1:
            seen = self._learning.devices.put(seen, along(0))
        state.memory, carry, actions = self._act(
            state.arrays, state.memory, state.carry, state.noise, np.int32(t), seen
        )
        if state.carry:
            state.carry = carry if t < self._problem.ppo.num_steps else self._carried(state.memory, state.carry)
        # A writable copy: some environments modify actions.
        return state, np.array(self._learning.devices.own(actions), self._actions_type)

    def _act_for_host(self, *inputs: Any) -> tuple[Tree, Tree, jax.Array]:
        """`Learning.act` with the actions in the host's memory: reading them takes one wait for the device, not two."""
        memory, carry, actions = self._learning.act(*inputs)
        return memory, carry, jax.device_put(actions, jax.memory.Space.Host)

    def warmed(self, state: JaxLearnerState, flags: Tree) -> JaxLearnerState:
        """See `Learner.warmed`."""
        with self.acting():
            state.learnt = self._warmed(state.learnt, state.memory, self._placed(flags))
        return state

    def _placed(self, flags: Tree) -> Tree:
        """The flags that learning takes, `[T, N]`, divided among several devices."""
        own = {name: flags[name] for name in self._flags}
        return own if self._learning.devices.count == 1 else self._learning.devices.put(own, along(1))

    def restart(self, state: JaxLearnerState) -> JaxLearnerState:
        """See `Learner.restart`."""
        state.learnt = self._learning.restart(state.learnt)
        return state

    def update(
        self, state: JaxLearnerState, flags: Tree, seed: int, iteration: int, learning_rate: float
    ) -> tuple[JaxLearnerState, dict[str, float]]:
        """See `Learner.update`."""
        placed = self._placed(flags)
        with self.acting():
            state.learnt, measured = self._learn(
                state.learnt, state.memory, placed, np.int32(seed), np.int32(iteration), learning_rate
            )
        return state, {name: float(value) for name, value in self._learning.devices.fetch(measured).items()}

    def _targets_and_update(
        self, learnt: TrainState, memory: Tree, flags: Tree, seed: Any, iteration: Any, learning_rate: Any
    ) -> tuple[TrainState, Tree]:
        learnt, batch, measured = self._learning.targets(learnt, memory, flags, seed, iteration)
        learnt, losses = self._learning.update(learnt, batch, seed, iteration, learning_rate)
        return learnt, {**losses, **measured}

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> JaxLearnerState:
        """See `Learner.load`."""
        carry = {name: jnp.asarray(array, self._learning.dtype) for name, array in under("envs.carry", arrays).items()}
        carry = self._learning.devices.put(carry, along(0))
        with self.acting():
            memory = self._learning.devices.put(self._allocate(), self._learning.memory_specs)
        learnt = self._learning.load(arrays)
        return JaxLearnerState(learnt, memory, carry, learnt.arrays)

    def export(self, state: JaxLearnerState) -> Arrays:
        """See `Learner.export`."""
        carry = named("envs.carry", state.carry)
        own = self._learning.devices.own
        carried = {array.name: np.array(own(carry[array.name])) for array in carry_arrays(self._problem)}
        return self._learning.export(state.learnt) | carried
