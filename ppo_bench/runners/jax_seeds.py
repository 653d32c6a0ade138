"""Training of several runs by one JAX program: the program of one run, vmapped and divided among the cores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import Arrays, Tree, add_prefix, select_prefix
from ppo_bench.runners.base import IterationReports, TrainingSpec
from ppo_bench.runners.episodes import zero_totals
from ppo_bench.runners.jax_functions import TrainState
from ppo_bench.runners.program import ProgramEnvs
from ppo_bench.runners.program_runner import ProgramRunner, ProgramState, collect_reports

T = TypeVar("T")

MAX_MINIBATCH_ROWS = 512
"""Maximum minibatch rows, summed over the runs that a core trains at a time: these fit its cache
(docs/performance.md)."""


class JaxSeedsRunner:
    """The runner of several independent runs, which it steps, restarts and exports at once (runners/seeds.py)."""

    def __init__(self, spec: TrainingSpec, grid_values: Sequence[Mapping[str, Any]] = ()) -> None:
        """`grid_values` has the hyperparameters (`VMAPPABLE_HYPERPARAMETERS`) in which the runs differ; or is empty."""
        self._runner = ProgramRunner(spec)
        self._grid_values, self._ppo_by_run = grid_values, [replace(spec.ppo, **values) for values in grid_values]
        self._device, self._dtype = self._runner.functions.device, self._runner.functions.dtype
        self._devices = jax.devices("cpu") if self._device.platform == "cpu" else [self._device]
        self.execution = {**self._runner.execution, "devices": len(self._devices)}
        self._initial_envs = jax.jit(self._stack_initial_envs)
        self._compiled: dict[int, Callable[..., Any]] = {}

    def iterate(self, state: ProgramState, until: int = 0) -> tuple[ProgramState, IterationReports]:
        """See `Runner.iterate`."""
        program = self._vmapped_program(self._runner.iteration_program(state), len(state.seeds))
        seeds = np.array(self._pad(state.seeds), np.int32)

        def arguments(k: int) -> tuple[np.ndarray, Tree]:
            by_run = self._pad(self._hyperparameters(state, k))
            return seeds, {name: np.array([one[name] for one in by_run], self._dtype) for name in by_run[0]}

        self._runner.enqueue_iterations(state, until, program, arguments)
        state.iteration += 1
        pending = jax.device_get(state.pending.pop(0))
        learning_rates = [one["scheduled_learning_rate"] for one in self._hyperparameters(state, state.iteration)]
        state.totals, measured = collect_reports(self._runner.spec, learning_rates, pending, state.totals)
        return state, measured

    def _hyperparameters(self, state: ProgramState, iteration: int) -> list[dict[str, Any]]:
        """Hyperparameters that are arguments of the program in `iteration`, of each run."""
        spec, runs = self._runner.spec, len(state.seeds)
        pairs = zip(self._grid_values or [{}] * runs, self._ppo_by_run or [spec.ppo] * runs, strict=True)
        return [
            {**values, "scheduled_learning_rate": hp.learning_rate_of(iteration, spec.num_iterations)}
            for values, hp in pairs
        ]

    def _vmapped_program(self, one: Callable[..., Any], num_seeds: int) -> Callable[..., Any]:
        """Compiled iteration of all runs, made from the iteration `one` of a single run; cached."""
        if num_seeds not in self._compiled:
            sharding = self._sharding(num_seeds)

            def iterate_shard(
                train_state: TrainState, envs: ProgramEnvs, seeds: jax.Array, hyperparameters: Tree, k: jax.Array
            ) -> Any:
                def iterate_seed(state: tuple[TrainState, ProgramEnvs, jax.Array, Tree]) -> Any:
                    return one(*state, k)

                states, together = (train_state, envs, seeds, hyperparameters), self._seeds_per_device(len(seeds))
                if together == len(seeds):
                    return jax.vmap(iterate_seed)(states)
                return jax.lax.map(iterate_seed, states, batch_size=together if together > 1 else None)

            seeds, same = sharding.spec, Spec()
            program = jax.shard_map(
                iterate_shard,
                mesh=sharding.mesh,
                in_specs=(seeds, seeds, seeds, seeds, same),
                out_specs=seeds,
                check_vma=False,  # seeds are independent of each other
            )
            self._compiled[num_seeds] = jax.jit(program, donate_argnums=(0, 1))
        return self._compiled[num_seeds]

    def _sharding(self, num_seeds: int) -> NamedSharding:
        """Sharding of the seeds: equal parts, one on each device."""
        return NamedSharding(
            Mesh(np.array(self._devices[: self._num_devices_for(num_seeds)]), ("seeds",)), Spec("seeds")
        )

    def _num_devices_for(self, num_seeds: int) -> int:
        """Minimum number of devices with which the largest part has no more seeds than with all devices."""
        most = math.ceil(num_seeds / len(self._devices))
        return math.ceil(num_seeds / most)

    def _seeds_per_device(self, num_local_seeds: int) -> int:
        """Number of seeds that a device trains at a time, out of `num_local_seeds` seeds; all of them on a GPU."""
        if self._device.platform != "cpu":
            return num_local_seeds
        turns = math.ceil(num_local_seeds / max(1, MAX_MINIBATCH_ROWS // self._runner.spec.ppo.minibatch_size))
        return math.ceil(num_local_seeds / turns)

    def _pad(self, values: Sequence[T]) -> list[T]:
        """List padded with copies of its last entry, so that parts are equal; results of the copies are dropped."""
        missing = -len(values) % self._num_devices_for(len(values))
        return [*values, *([values[-1]] * missing)]

    def init(self, seeds: Sequence[int]) -> ProgramState:
        """See `Runner.init`."""
        return self.restore([self._runner.arrays_after_warmup(seed) for seed in seeds])

    def export(self, state: ProgramState) -> list[Arrays]:
        """See `Runner.export`."""
        assert not state.pending, "the program has run ahead of the iteration that is asked for"
        everything = jax.device_get((state.train_state, state.envs))
        return [
            self._runner.export_run(seed, state.iteration, *jax.tree.map(lambda array, k=k: array[k], everything))
            for k, seed in enumerate(state.seeds)
        ]

    def restore(self, arrays: Sequence[Arrays]) -> ProgramState:
        """See `Runner.restore`; all runs must have done equally many iterations."""
        arrays_by_run = [self._runner.training_arrays(run) for run in arrays]
        seeds, iteration = [int(run["seed"]) for run in arrays_by_run], int(arrays_by_run[0]["iteration"])
        padded = self._pad(arrays_by_run)
        stacked = {name: np.stack([run[name] for run in padded]) for name in arrays_by_run[0]}
        spec, sharding = self._runner.spec, self._sharding(len(seeds))
        with jax.enable_x64(True):  # arrays of the environments include 64-bit types
            with jax.default_device(self._device):
                statistics = add_prefix("normalize", select_prefix("normalize", stacked))
                starts = [self._runner.env.reset(jnp, spec.env_seeds(seed, iteration)) for seed in self._pad(seeds)]
                envs = self._initial_envs(starts, statistics)
            train_state, envs = jax.device_put((self._runner.functions.load(stacked), envs), sharding)
        totals = zero_totals(len(seeds) * spec.num_envs)
        return ProgramState(seeds, iteration, train_state, envs, totals)

    def _stack_initial_envs(self, starts: Sequence[tuple[Any, PolicyInput]], statistics: Tree) -> ProgramEnvs:
        """Environments of all runs, stacked, that have just been reset. The running `statistics`, stacked too, are
        updated by the first observations of their run."""
        state, policy_input = jax.tree.map(lambda *arrays: jnp.stack(arrays), *starts)
        initial: ProgramEnvs = jax.vmap(self._runner.initial_envs)(state, policy_input, statistics)
        return initial

    def restart_envs(self, state: ProgramState) -> ProgramState:
        """See `Runner.restart_envs`."""
        return self.restore(self.export(state))

    def close(self) -> None:
        """See `Runner.close`."""
        self._runner.close()
