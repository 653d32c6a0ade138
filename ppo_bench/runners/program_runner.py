"""Runner whose iterations are one JAX program each; the host enqueues several before it reads their results."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, PolicyInput, StepFunction
from ppo_bench.mathematics.arrays import (
    PERSISTENT_ROLES,
    ArrayRole,
    Arrays,
    Tree,
    add_prefix,
    default_arrays,
    load_arrays,
    select_prefix,
    select_roles,
)
from ppo_bench.runners.array_specs import COUNTERS, STATE_NAMES, array_specs, initial_arrays, zero_params
from ppo_bench.runners.base import Episode, Metrics, TrainingSpec
from ppo_bench.runners.env_steps import observe
from ppo_bench.runners.episodes import EpisodeTotals, zero_totals
from ppo_bench.runners.jax_functions import JaxFunctions, TrainState
from ppo_bench.runners.jax_mesh import REPLICATED
from ppo_bench.runners.program import IterationProgram, ProgramEnvs, compile_iteration, env_sharding_specs, run_warmup
from ppo_bench.runners.reports import PendingIteration, collect_reports

MAX_PENDING = 8
"""Maximum number of enqueued iterations. JAX blocks a caller that enqueues more than 32 programs."""
HOST_COMPUTED = ("envs.returns", "envs.lengths", "envs.obs")
"""Environment arrays that a program's initial state does not take from the declared ones.

The host computes episode returns and lengths; observations come from the reset.
"""


@dataclass
class ProgramState:
    """State of a training between two iterations."""

    seed: int
    iteration: int
    """Number of iterations that `iterate` has returned."""
    train_state: TrainState
    envs: ProgramEnvs
    totals: EpisodeTotals
    program: IterationProgram
    """Compiled iteration of these environments; environments with another `env_step` need another."""
    env_step: StepFunction
    pending: list[PendingIteration] = field(default_factory=list)
    """Enqueued iterations that `iterate` has not returned; `train_state` and `envs` are those after the last."""


class ProgramRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, spec: TrainingSpec, env: GraphEnv, iterations_per_call: int) -> None:
        self.spec, self.functions = spec, JaxFunctions(spec)
        self.env = env
        self._array_specs = array_specs(spec)
        self._iterations_per_call = iterations_per_call
        self.execution = self.functions.execution
        self._compiled: dict[StepFunction, IterationProgram] = {}
        self.last_enqueued: Any = None
        """Results of the last enqueued iteration; they are ready once the device is idle."""

    def iterate(self, state: ProgramState) -> tuple[ProgramState, Metrics, list[Episode]]:
        """See `Runner.iterate`."""
        self._enqueue_iterations(state)
        state.iteration += 1
        # It waits for this iteration, while the device goes on.
        pending = jax.tree.map(
            lambda array: np.asarray(array)[None], self.functions.devices.fetch(state.pending.pop(0))
        )
        learning_rate = self._learning_rate(state.iteration)
        state.totals, ((metrics, episodes),) = collect_reports(self.spec, [learning_rate], pending, state.totals)
        return state, metrics, episodes

    def _enqueue_iterations(self, state: ProgramState) -> None:
        """Enqueue the next iterations; returns without waiting for them."""
        with jax.default_device(self.functions.device):
            for k in self.iterations_to_enqueue(state.iteration, len(state.pending)):
                hyperparameters = {"learning_rate": np.array(self._learning_rate(k), self.functions.dtype)}
                seed, iteration = np.int32(state.seed), np.int32(k)
                state.train_state, state.envs, *results = state.program(
                    state.train_state, state.envs, seed, hyperparameters, iteration
                )
                self.last_enqueued = PendingIteration(*results)  # type: ignore[arg-type]
                state.pending.append(self.last_enqueued)

    def _learning_rate(self, iteration: int) -> float:
        return self.spec.ppo.learning_rate_of(iteration, self.spec.num_iterations)

    def iterations_to_enqueue(self, iteration: int, pending: int = 0) -> range:
        """Iterations to enqueue: from `iteration + pending + 1` to the end of the block, at most `MAX_PENDING`."""
        block_ends = (iteration // self._iterations_per_call + 1) * self._iterations_per_call
        last = max(iteration + 1, min(block_ends, iteration + MAX_PENDING, self.spec.num_iterations))
        return range(iteration + pending + 1, last + 1)

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def init(self, seed: int) -> ProgramState:
        """See `Runner.init`."""
        return self.restore(self.arrays_after_warmup(seed))

    def arrays_after_warmup(self, seed: int) -> Arrays:
        """Arrays of a training before its first iteration, after the rollouts by which the algorithm warms up."""
        initial, num_rollouts = initial_arrays(self.spec, seed), self.spec.algorithm.num_warmup_rollouts
        if not num_rollouts:
            return initial
        zeros = zero_params(self.spec)
        state = self.restore(initial | zeros)
        with jax.default_device(self.functions.device):
            specs = self.functions.specs, env_sharding_specs(state.envs)
            function = functools.partial(run_warmup, self.functions, state.env_step)
            program = self.functions.devices.jit(function, (*specs, REPLICATED, REPLICATED), specs)
            iterations = np.arange(-num_rollouts, 0, dtype=np.int32)
            state.train_state, state.envs = program(state.train_state, state.envs, np.int32(seed), iterations)
        return self.export(state) | {name: initial[name] for name in zeros}

    def export(self, state: ProgramState) -> Arrays:
        """See `Runner.export`. Requires that `state.pending` is empty."""
        assert not state.pending, "the device has run ahead of the iteration that is to be exported"
        counters = {"seed": np.array(state.seed), "iteration": np.array(state.iteration)}
        return self.functions.export(state.train_state) | counters | self._statistics(state)

    def _statistics(self, state: ProgramState) -> Arrays:
        names = (array.name for array in select_roles(self._array_specs, ArrayRole.STATISTIC))
        own = self.functions.devices.local_array
        return {name: np.array(own(state.envs.arrays[name])) for name in names if name in state.envs.arrays}

    def restore(self, arrays: Arrays, restore_envs: bool = False) -> ProgramState:
        """See `Runner.restore`."""
        if restore_envs:
            raise ConfigError("environments that are part of a program cannot replay a recording: use another backend")
        state = self.training_arrays(arrays)
        seed, iteration = (int(state[counter.name]) for counter in COUNTERS)
        return self._reset_state(seed, iteration, self.functions.load(state), state)

    def training_arrays(self, arrays: Arrays) -> Arrays:
        """All arrays but those of `initial_envs`. Raises `ConfigError` if they are of another training."""
        state = load_arrays(select_roles(self._array_specs, *PERSISTENT_ROLES), arrays, strict=True)
        fresh = select_roles(self._array_specs, ArrayRole.ENVIRONMENT)
        return state | default_arrays(array for array in fresh if not array.name.startswith("envs."))

    def episode_lengths(self, state: ProgramState) -> np.ndarray:
        """See `Runner.episode_lengths`. The lengths are those after the last iteration that `iterate` returned."""
        return state.totals.lengths

    def restart_envs(self, state: ProgramState, iteration: int) -> ProgramState:
        """See `Runner.restart_envs`. Requires that `state.pending` is empty."""
        assert not state.pending, "the device has run ahead of the iteration after which environments are to restart"
        train_state = self.functions.reset_env_statistics(state.train_state)
        fresh = self._reset_state(state.seed, iteration, train_state, self._statistics(state))
        fresh.iteration = state.iteration
        return fresh

    def close(self) -> None:
        """See `Runner.close`."""
        try:
            jax.block_until_ready(self.last_enqueued)  # environments must not be closed while a program steps them
        finally:
            self.env.close()

    def _reset_state(self, seed: int, iteration: int, train_state: TrainState, statistics: Arrays) -> ProgramState:
        """State with environments reset by the key (seed, iteration).

        Running statistics are those in `statistics`, updated by the first observations.
        """
        with jax.default_device(self.functions.device), jax.enable_x64(True):
            result = self.env.reset(self.spec.env_seeds(seed, iteration))
            # Commits the arrays to the devices, like the program's results.
            envs = self.initial_envs(
                result.state, result.policy_input, add_prefix("normalize", select_prefix("normalize", statistics))
            )
            envs = self.functions.devices.put(envs, env_sharding_specs(envs))
        totals = zero_totals(self.spec.num_envs)
        return ProgramState(
            seed, iteration, train_state, envs, totals, self.iteration_program(result.step, envs), result.step
        )

    def initial_envs(self, state: Any, policy_input: PolicyInput, statistics: Tree) -> ProgramEnvs:
        """Environments that have just been reset to `state`, with the running `statistics` updated by the observations
        in `policy_input`.

        Requires 64-bit types to be enabled.
        """
        env_specs = [
            array for array in select_roles(self._array_specs, ArrayRole.ENVIRONMENT) if array.name.startswith("envs.")
        ]
        defaults = {array.name: jnp.full(array.shape, array.fill, array.dtype) for array in env_specs}
        carry = select_prefix("envs.carry", defaults)
        excluded = (*HOST_COMPUTED, *add_prefix("envs.carry", carry))
        arrays = {name: array for name, array in defaults.items() if name not in excluded}
        arrays |= {name: jnp.array(array) for name, array in statistics.items()}
        fields = policy_input._asdict().items()
        arrays |= {STATE_NAMES[name]: array for name, array in fields if name != "obs" and array is not None}
        arrays |= observe(jnp, self.spec, arrays, policy_input.obs, self.spec.all_reduce_moments)
        return ProgramEnvs(state, arrays, carry)

    def iteration_program(self, env_step: StepFunction, envs: ProgramEnvs) -> IterationProgram:
        """Compiled iteration of `envs` with the step function `env_step`; cached by `env_step`."""
        if env_step not in self._compiled:
            self._compiled[env_step] = compile_iteration(self.functions, env_step, envs)
        return self._compiled[env_step]
