"""Training of several runs by one JAX program: the program of one run, vmapped and divided among the cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ppo_bench.common.errors import FailedRuns
from ppo_bench.envs.base import EnvStep, GraphEnv, Seen
from ppo_bench.mathematics.arrays import Arrays, Tree, named, under
from ppo_bench.runners.base import Problem
from ppo_bench.runners.episodes import Totals, no_totals
from ppo_bench.runners.jax_learning import TrainState
from ppo_bench.runners.program import Envs, Iterate
from ppo_bench.runners.program_runner import ProgramRunner, ProgramState
from ppo_bench.runners.reports import Ahead, reported
from ppo_bench.runners.seeds import Measured, named_run

T = TypeVar("T")

MOST_ROWS = 512
"""Maximum minibatch rows, summed over the runs that a core trains at a time: these fit its cache
(docs/performance.md)."""


@dataclass
class SeedsState:
    """State of the trainings of S runs between two iterations."""

    seeds: list[int]
    """Seed of each run."""
    iteration: int
    """Number of iterations done."""
    learnt: TrainState
    """Train states of all runs, stacked: arrays `[S, ...]`, padded to equal parts of the devices."""
    envs: Envs
    """Environment states of all runs, stacked and padded likewise."""
    totals: Totals
    """Totals of the environments of all runs, run by run, `[S * N]`; not padded."""
    iterate: Iterate
    """Iteration of one run; see `ProgramState`."""
    env_step: EnvStep
    ahead: list[Ahead] = field(default_factory=list)
    """Enqueued iterations, see `ProgramState`; arrays of all runs are stacked."""


class JaxSeedsRunner:
    """A `SeedsRunner`; see ppo_bench/runners/seeds.py. It steps, restarts and exports all runs at once."""

    def __init__(
        self, problem: Problem, env: GraphEnv, iterations_per_call: int, own: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """`own` has the hyperparameters in which the runs differ, all of one set of `NUMBERS`; none if it is empty."""
        self._one = ProgramRunner(problem, env, iterations_per_call)
        self._own, self._each = own, [replace(problem.ppo, **each) for each in own]
        self._device = self._one.learning.device
        self._devices = jax.devices("cpu") if self._device.platform == "cpu" else [self._device]
        self.execution = self._one.execution | {"devices": len(self._devices)}
        self._begun = jax.jit(self._begun_together)
        self._compiled: dict[tuple[Iterate, int], Iterate] = {}

    def step(self, state: SeedsState) -> tuple[SeedsState, Measured]:
        """See `SeedsRunner.step`."""
        self._run_ahead(state)
        state.iteration += 1
        ahead = jax.device_get(state.ahead.pop(0))
        learning_rates = [told["learning_rate"] for told in self._hyperparameters(state, state.iteration)]
        try:
            state.totals, measured = reported(self._one.problem, learning_rates, ahead, state.totals)
        except FailedRuns as error:
            raise FailedRuns({k: f"{self._named(state, k)}: {reason}" for k, reason in error.reasons.items()}) from None
        return state, measured

    def _named(self, state: SeedsState, k: int) -> str:
        return named_run(self._own[k] if self._own else {}, state.seeds[k])

    def _run_ahead(self, state: SeedsState) -> None:
        """See `ProgramRunner._run_ahead`."""
        iterate, seeds = self._iterate(state.iterate, len(state.seeds)), np.array(self._padded(state.seeds), np.int32)
        with jax.default_device(self._device):
            for k in self._one.upcoming(state.iteration, len(state.ahead)):
                told = self._padded(self._hyperparameters(state, k))
                stacked = {name: np.array([own[name] for own in told], self._one.learning.dtype) for name in told[0]}
                state.learnt, state.envs, *given = iterate(state.learnt, state.envs, seeds, stacked, np.int32(k))
                self._one.given = Ahead(*given)  # type: ignore[arg-type]
                state.ahead.append(self._one.given)

    def _hyperparameters(self, state: SeedsState, iteration: int) -> list[dict[str, Any]]:
        """Hyperparameters that are arguments of the program in `iteration`, of each run."""
        problem, runs = self._one.problem, len(state.seeds)
        pairs = zip(self._own or [{}] * runs, self._each or [problem.ppo] * runs, strict=True)
        return [{**own, "learning_rate": hp.learning_rate_of(iteration, problem.num_iterations)} for own, hp in pairs]

    def _iterate(self, one: Iterate, num_seeds: int) -> Iterate:
        """Compiled iteration of all runs, made from the iteration `one` of a single run; cached."""
        if (one, num_seeds) not in self._compiled:
            sharding = self._sharding(num_seeds)

            def of_part(learnt: TrainState, envs: Envs, seeds: jax.Array, hyperparameters: Tree, k: jax.Array) -> Any:
                def of_seed(own: tuple[TrainState, Envs, jax.Array, Tree]) -> Any:
                    return one(*own, k)

                own, together = (learnt, envs, seeds, hyperparameters), self._together(len(seeds))
                if together == len(seeds):
                    return jax.vmap(of_seed)(own)
                return jax.lax.map(of_seed, own, batch_size=together if together > 1 else None)

            seeds, same = sharding.spec, Spec()
            program = jax.shard_map(
                of_part,
                mesh=sharding.mesh,
                in_specs=(seeds, seeds, seeds, seeds, same),
                out_specs=seeds,
                check_vma=False,  # seeds are independent of each other
            )
            self._compiled[one, num_seeds] = jax.jit(program, donate_argnums=(0, 1))
        return self._compiled[one, num_seeds]

    def _sharding(self, num_seeds: int) -> NamedSharding:
        """Sharding of the seeds: equal parts, one on each device."""
        return NamedSharding(Mesh(np.array(self._devices[: self._parts(num_seeds)]), ("seeds",)), Spec("seeds"))

    def _parts(self, num_seeds: int) -> int:
        """Minimum number of devices with which the largest part has no more seeds than with all devices."""
        most = math.ceil(num_seeds / len(self._devices))
        return math.ceil(num_seeds / most)

    def _together(self, of_part: int) -> int:
        """Number of seeds that a device trains at a time, out of `of_part` seeds; all of them on a GPU."""
        if self._device.platform != "cpu":
            return of_part
        turns = math.ceil(of_part / max(1, MOST_ROWS // self._one.problem.ppo.minibatch_size))
        return math.ceil(of_part / turns)

    def _padded(self, of_each_run: Sequence[T]) -> list[T]:
        """List padded with copies of its last entry, so that parts are equal; results of the copies are dropped."""
        missing = -len(of_each_run) % self._parts(len(of_each_run))
        return [*of_each_run, *([of_each_run[-1]] * missing)]

    def init(self, seeds: Sequence[int]) -> SeedsState:
        """See `SeedsRunner.init`."""
        return self.restore([self._one.initial(seed) for seed in seeds])

    def export(self, state: SeedsState) -> list[Arrays]:
        """See `SeedsRunner.export`."""
        assert not state.ahead, "the program has run ahead of the iteration that is asked for"
        everything = jax.device_get((state.learnt, state.envs))

        def own(k: int) -> Arrays:
            learnt, envs = jax.tree.map(lambda array: array[k], everything)
            totals = no_totals(self._one.problem.num_envs)  # an export has none
            stands = state.seeds[k], state.iteration, learnt, envs, totals, state.iterate, state.env_step
            return self._one.export(ProgramState(*stands))

        return [own(k) for k in range(len(state.seeds))]

    def restore(self, arrays: Sequence[Arrays]) -> SeedsState:
        """See `SeedsRunner.restore`."""
        whole = [self._one.whole(own) for own in arrays]
        seeds, iteration = [int(own["seed"]) for own in whole], int(whole[0]["iteration"])
        padded = self._padded(whole)
        stacked = {name: np.stack([own[name] for own in padded]) for name in whole[0]}
        sharding = self._sharding(len(seeds))
        with jax.enable_x64(True):  # arrays of the environments include 64-bit types
            envs, env_step = self._fresh(self._padded(seeds), iteration, under("normalize", stacked))
            learnt, envs = jax.device_put((self._one.learning.load(stacked), envs), sharding)
        totals = no_totals(len(seeds) * self._one.problem.num_envs)
        return SeedsState(seeds, iteration, learnt, envs, totals, self._one.iterate(env_step, envs), env_step)

    def _fresh(self, seeds: Sequence[int], iteration: int, statistics: Tree) -> tuple[Envs, EnvStep]:
        """Environments of all runs, reset by the keys (seed, iteration), and their step function.

        Running statistics are those in `statistics`, updated by the first observations of their run.
        """
        problem = self._one.problem
        with jax.default_device(self._device):
            starts = [self._one.env.reset(problem.env_seeds(seed, iteration)) for seed in seeds]
            stood = [(start.state, start.seen) for start in starts]
            return self._begun(stood, named("normalize", statistics)), starts[0].step

    def _begun_together(self, starts: Sequence[tuple[Any, Seen]], statistics: Tree) -> Envs:
        """Environments of all runs, stacked, that have just been reset; `statistics` are stacked, too."""
        state, seen = jax.tree.map(lambda *arrays: jnp.stack(arrays), *starts)
        begun: Envs = jax.vmap(self._one.begun)(state, seen, statistics)
        return begun

    def in_progress(self, state: SeedsState) -> list[np.ndarray]:
        """See `SeedsRunner.in_progress`."""
        return np.split(state.totals.lengths, len(state.seeds))

    def restart(self, state: SeedsState, iteration: int) -> SeedsState:
        """See `SeedsRunner.restart`."""
        assert iteration == state.iteration
        return self.restore(self.export(state))

    def close(self) -> None:
        """See `SeedsRunner.close`."""
        self._one.close()
