"""Runner whose iterations are one JAX program each; the host enqueues several before it reads their results."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.common.errors import ConfigError, FailedRuns
from ppo_bench.envs.base import GraphEnv, PolicyInput
from ppo_bench.envs.float_range import out_of_range
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
from ppo_bench.runners.array_specs import COUNTERS, array_specs, initial_arrays, zero_params
from ppo_bench.runners.base import Episode, IterationReports, Metrics, TrainingSpec
from ppo_bench.runners.env_steps import observe
from ppo_bench.runners.episodes import EpisodeTotals, FinishedEpisodes, accumulate_returns, to_episodes, zero_totals
from ppo_bench.runners.jax_functions import JaxFunctions, TrainState
from ppo_bench.runners.jax_mesh import REPLICATED, sharded_along
from ppo_bench.runners.program import ProgramEnvs, RolloutRewards, env_sharding_specs, iterate, run_warmup

HOST_COMPUTED = ("envs.returns", "envs.lengths", "envs.obs")
"""Environment arrays that a program's initial state does not take from the declared ones.

The host computes episode returns and lengths; observations come from the reset.
"""


PendingIteration = tuple[RolloutRewards, dict[str, jax.Array]]
"""Rewards and metrics of an enqueued iteration, which may be pending on the device."""


@dataclass
class ProgramState:
    """State of one training, or of the S trainings of a `JaxSeedsRunner`, between two iterations.

    The arrays of several are stacked, `[S, ...]`, and padded to equal parts of the devices.
    """

    seeds: list[int]
    iteration: int
    """Number of iterations that `iterate` has returned."""
    train_state: TrainState
    envs: ProgramEnvs
    totals: EpisodeTotals
    """Totals of all environments, training by training, `[S * N]`; not padded."""
    pending: list[PendingIteration] = field(default_factory=list)
    """Enqueued iterations that `iterate` has not returned; `train_state` and `envs` are those after the last."""


class ProgramRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, spec: TrainingSpec) -> None:
        """The environments of `spec` must be a `GraphEnv`."""
        assert isinstance(spec.env, GraphEnv)
        self.spec, self.functions, self.env = spec, JaxFunctions(spec), spec.env
        self._array_specs = array_specs(spec)
        self.execution: Mapping[str, object] = self.functions.execution
        self._program: Callable[..., Any] | None = None
        self.last_enqueued: Any = None
        """Results of the last enqueued iteration; they are ready once the device is idle."""

    def iterate(self, state: ProgramState, until: int = 0) -> tuple[ProgramState, Metrics, list[Episode]]:
        """See `Runner.iterate`."""
        program = self.iteration_program(state)
        self.enqueue_iterations(state, until, program, lambda k: (np.int32(state.seeds[0]), self._hyperparameters(k)))
        state.iteration += 1
        # It waits for this iteration, while the device goes on.
        pending = jax.tree.map(
            lambda array: np.asarray(array)[None], self.functions.devices.fetch(state.pending.pop(0))
        )
        learning_rate = self._learning_rate(state.iteration)
        state.totals, ((metrics, episodes),) = collect_reports(self.spec, [learning_rate], pending, state.totals)
        return state, metrics, episodes

    def enqueue_iterations(
        self,
        state: ProgramState,
        until: int,
        program: Callable[..., Any],
        arguments: Callable[[int], tuple[Any, Tree]],
    ) -> None:
        """Enqueue the next iteration of `program` and those up to `until`, without waiting for them.

        `arguments` returns the seed and the hyperparameters of an iteration.
        """
        last = min(until, self.spec.num_iterations)
        with jax.default_device(self.functions.device):
            for k in range(state.iteration + len(state.pending) + 1, max(last, state.iteration + 1) + 1):
                state.train_state, state.envs, *results = program(
                    state.train_state, state.envs, *arguments(k), np.int32(k)
                )
                self.last_enqueued = results
                state.pending.append(tuple(results))

    def _hyperparameters(self, iteration: int) -> Tree:
        return {"scheduled_learning_rate": np.array(self._learning_rate(iteration), self.functions.dtype)}

    def _learning_rate(self, iteration: int) -> float:
        return self.spec.ppo.learning_rate_of(iteration, self.spec.num_iterations)

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
            function = functools.partial(run_warmup, self.functions)
            program = self.functions.devices.jit(function, (*specs, REPLICATED, REPLICATED), specs)
            iterations = np.arange(-num_rollouts, 0, dtype=np.int32)
            state.train_state, state.envs = program(state.train_state, state.envs, np.int32(seed), iterations)
        return self.export(state) | {name: initial[name] for name in zeros}

    def export(self, state: ProgramState) -> Arrays:
        """See `Runner.export`. Requires that `state.pending` is empty."""
        assert not state.pending, "the device has run ahead of the iteration that is to be exported"
        return self.export_run(state.seeds[0], state.iteration, state.train_state, state.envs)

    def export_run(self, seed: int, iteration: int, train_state: TrainState, envs: ProgramEnvs) -> Arrays:
        """The arrays of one training's state; see `Runner.export`."""
        names = (array.name for array in select_roles(self._array_specs, ArrayRole.STATISTIC))
        own = self.functions.devices.local_array
        counters = {"seed": np.array(seed), "iteration": np.array(iteration)}
        statistics = {name: np.array(own(envs.arrays[name])) for name in names if name in envs.arrays}
        return self.functions.export(train_state) | counters | statistics

    def restore(self, arrays: Arrays, restore_envs: bool = False) -> ProgramState:
        """See `Runner.restore`."""
        if restore_envs:
            raise ConfigError("environments that are part of a program cannot replay a recording: use another backend")
        state = self.training_arrays(arrays)
        seed, iteration = (int(state[counter.name]) for counter in COUNTERS)
        train_state = self.functions.load(state)
        with jax.default_device(self.functions.device), jax.enable_x64(True):
            env_state, policy_input = self.env.reset(jnp, self.spec.env_seeds(seed, iteration))
            statistics = add_prefix("normalize", select_prefix("normalize", state))
            envs = self.initial_envs(env_state, policy_input, statistics)
            # Commits the arrays to the devices, like the program's results.
            envs = self.functions.devices.put(envs, env_sharding_specs(envs))
        return ProgramState([seed], iteration, train_state, envs, zero_totals(self.spec.num_envs))

    def training_arrays(self, arrays: Arrays) -> Arrays:
        """All arrays but those of `initial_envs`. Raises `ConfigError` if they are of another training."""
        state = load_arrays(select_roles(self._array_specs, *PERSISTENT_ROLES), arrays, strict=True)
        fresh = select_roles(self._array_specs, ArrayRole.ENVIRONMENT)
        return state | default_arrays(array for array in fresh if not array.name.startswith("envs."))

    def restart_envs(self, state: ProgramState) -> ProgramState:
        """See `Runner.restart_envs`. Requires that `state.pending` is empty."""
        return self.restore(self.export(state))

    def close(self) -> None:
        """See `Runner.close`."""
        failure = sys.exception()
        try:
            jax.block_until_ready(self.last_enqueued)  # an error leaves iterations enqueued
        except Exception:
            if failure is None:
                raise
        finally:
            self.env.close()

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
        arrays |= {f"envs.{name}": array for name, array in fields if name != "obs" and array is not None}
        arrays |= observe(jnp, self.spec, arrays, policy_input.obs, self.spec.all_reduce_moments)
        return ProgramEnvs(state, arrays, carry)

    def iteration_program(self, state: ProgramState) -> Callable[..., Any]:
        """Compiled `iterate` of one training, which donates the buffers of its state."""
        if self._program is None:
            changed = self.functions.specs, env_sharding_specs(state.envs)
            self._program = self.functions.devices.jit(
                functools.partial(iterate, self.functions),
                (*changed, REPLICATED, REPLICATED, REPLICATED),
                (*changed, sharded_along(0), REPLICATED),
                donated=(0, 1),
            )
        return self._program


def collect_reports(
    spec: TrainingSpec, learning_rates: Sequence[float], pending: PendingIteration, totals: EpisodeTotals
) -> tuple[EpisodeTotals, IterationReports]:
    """Totals after an iteration of S runs, and what it measured, from its results on the host.

    Arrays of `pending` are those of a run, stacked `[S, ...]`; those past the learning rates are padding. `totals` are
    those of all `S * N` environments before it, run by run. Raises `FailedRuns` if a reward is out of range.
    """
    runs, (rewards, measured) = len(learning_rates), pending
    raw_rewards, episode_over, value_mask = (np.asarray(array)[:runs] for array in rewards)
    within = np.isfinite(raw_rewards.max(axis=(1, 2))) & np.isfinite(raw_rewards.min(axis=(1, 2)))
    if not within.all():
        failed = np.flatnonzero(~within).tolist()
        reasons = (out_of_range("a reward", raw_rewards[k], spec.first_env) for k in failed)
        raise FailedRuns(dict(zip(failed, map(str, reasons), strict=True)))
    side_by_side = (array.reshape(-1, array.shape[-1]) for array in (raw_rewards, episode_over, value_mask))
    totals, ended = accumulate_returns(totals, *side_by_side)
    episodes = _by_run(ended, runs, spec.num_envs)
    own = {name: np.asarray(array, np.float64)[:runs].tolist() for name, array in measured.items()}
    own.setdefault("learning_rate", list(learning_rates))
    own["masked_fraction"] = (1.0 - value_mask.mean(axis=(1, 2))).tolist()
    names = [metric.name for metric in metrics_of(spec.algorithm)]
    metrics = [dict(zip(names, row, strict=True)) for row in zip(*(own[name] for name in names), strict=True)]
    return totals, list(zip(metrics, episodes, strict=True))


def _by_run(ended: FinishedEpisodes, runs: int, num_envs: int) -> list[list[Episode]]:
    """Episodes of each run, in the order of their ends."""
    run_ids, envs = np.divmod(ended.envs, num_envs)
    in_order = ended._replace(envs=envs).reorder(np.lexsort((envs, ended.steps, run_ids)))
    episodes, last = to_episodes(in_order, num_envs), np.cumsum(np.bincount(run_ids, minlength=runs)).tolist()
    return [episodes[first:past] for first, past in pairwise([0, *last])]
