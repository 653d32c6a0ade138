"""Runner whose iterations are one JAX program each; the host enqueues several before it reads their results."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import EnvStep, GraphEnv, Seen
from ppo_bench.mathematics.arrays import KEPT, Arrays, Kind, Tree, filled, named, of_kinds, restored, under
from ppo_bench.runners.base import Episode, Metrics, Problem
from ppo_bench.runners.declared import COUNTERS, declared_arrays, initial_arrays, of_zeros
from ppo_bench.runners.env_steps import observed
from ppo_bench.runners.episodes import Totals, no_totals
from ppo_bench.runners.jax_learning import Learning, TrainState
from ppo_bench.runners.jax_mesh import SAME
from ppo_bench.runners.program import Envs, Iterate, compiled, specs_of_envs, warmed
from ppo_bench.runners.reports import Ahead, reported

MOST_AHEAD = 8
"""Maximum number of enqueued iterations. JAX blocks a caller that enqueues more than 32 programs."""
FOLDED = ("envs.returns", "envs.lengths", "envs.obs")
"""Environment arrays that a program's initial state does not take from the declared ones.

The host computes episode returns and lengths; observations come from the reset.
"""


@dataclass
class ProgramState:
    """State of a training between two iterations."""

    seed: int
    iteration: int
    """Number of iterations that `step` has returned."""
    learnt: TrainState
    envs: Envs
    totals: Totals
    iterate: Iterate
    """Compiled iteration of these environments; environments with another `env_step` need another."""
    env_step: EnvStep
    ahead: list[Ahead] = field(default_factory=list)
    """Enqueued iterations that `step` has not returned; `learnt` and `envs` are the state after the last of them."""


class ProgramRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, problem: Problem, env: GraphEnv, iterations_per_call: int) -> None:
        self.problem, self.learning = problem, Learning(problem)
        self.env = env
        self._declared = declared_arrays(problem)
        self._at_once = iterations_per_call
        self.execution = self.learning.execution
        self._compiled: dict[EnvStep, Iterate] = {}
        self.given: Any = None
        """Results of the last enqueued iteration; they are ready once the device is idle."""

    def step(self, state: ProgramState) -> tuple[ProgramState, Metrics, list[Episode]]:
        """See `Runner.step`."""
        self._run_ahead(state)
        state.iteration += 1
        # It waits for this iteration, while the device goes on.
        ahead = jax.tree.map(lambda array: np.asarray(array)[None], self.learning.devices.fetch(state.ahead.pop(0)))
        learning_rate = self._learning_rate(state.iteration)
        state.totals, ((metrics, episodes),) = reported(self.problem, [learning_rate], ahead, state.totals)
        return state, metrics, episodes

    def _run_ahead(self, state: ProgramState) -> None:
        """Enqueue the next iterations; returns without waiting for them."""
        with jax.default_device(self.learning.device):
            for k in self.upcoming(state.iteration, len(state.ahead)):
                told = {"learning_rate": np.array(self._learning_rate(k), self.learning.dtype)}
                seed, iteration = np.int32(state.seed), np.int32(k)
                state.learnt, state.envs, *given = state.iterate(state.learnt, state.envs, seed, told, iteration)
                self.given = Ahead(*given)  # type: ignore[arg-type]
                state.ahead.append(self.given)

    def _learning_rate(self, iteration: int) -> float:
        return self.problem.ppo.learning_rate_of(iteration, self.problem.num_iterations)

    def upcoming(self, iteration: int, ahead: int = 0) -> range:
        """Iterations to enqueue: from `iteration + ahead + 1` to the end of the block, at most `MOST_AHEAD` ahead."""
        block_ends = (iteration // self._at_once + 1) * self._at_once
        last = max(iteration + 1, min(block_ends, iteration + MOST_AHEAD, self.problem.num_iterations))
        return range(iteration + ahead + 1, last + 1)

    # --- Initialising, exporting and restoring ------------------------------------------------------------------------

    def init(self, seed: int) -> ProgramState:
        """See `Runner.init`."""
        return self.restore(self.initial(seed))

    def initial(self, seed: int) -> Arrays:
        """Arrays of a training before its first iteration, after the rollouts by which the algorithm warms up."""
        begun, warm_up = initial_arrays(self.problem, seed), self.problem.algorithm.warm_up
        if not warm_up:
            return begun
        zeros = of_zeros(self.problem)
        state = self.restore(begun | zeros)
        with jax.default_device(self.learning.device):
            specs = self.learning.specs, specs_of_envs(state.envs)
            function = functools.partial(warmed, self.learning, state.env_step)
            program = self.learning.devices.program(function, (*specs, SAME, SAME), specs)
            iterations = np.arange(-warm_up, 0, dtype=np.int32)
            state.learnt, state.envs = program(state.learnt, state.envs, np.int32(seed), iterations)
        return self.export(state) | {name: begun[name] for name in zeros}

    def export(self, state: ProgramState) -> Arrays:
        """See `Runner.export`. Requires that `state.ahead` is empty."""
        assert not state.ahead, "the device has run ahead of the iteration that is to be exported"
        counters = {"seed": np.array(state.seed), "iteration": np.array(state.iteration)}
        return self.learning.export(state.learnt) | counters | self._statistics(state)

    def _statistics(self, state: ProgramState) -> Arrays:
        names = (array.name for array in of_kinds(self._declared, Kind.STATISTIC))
        own = self.learning.devices.own
        return {name: np.array(own(state.envs.arrays[name])) for name in names if name in state.envs.arrays}

    def restore(self, arrays: Arrays, carried: bool = False) -> ProgramState:
        """See `Runner.restore`."""
        if carried:
            raise ConfigError("environments that are part of a program cannot replay a recording: use another backend")
        state = self.whole(arrays)
        seed, iteration = (int(state[counter.name]) for counter in COUNTERS)
        return self._fresh(seed, iteration, self.learning.load(state), state)

    def whole(self, arrays: Arrays) -> Arrays:
        """All arrays of a training but those of `begun`. Raises `ConfigError` if `arrays` are of another training."""
        state = restored(of_kinds(self._declared, *KEPT), arrays, whole=True)
        fresh = of_kinds(self._declared, Kind.ENVIRONMENT)
        return state | filled(array for array in fresh if not array.name.startswith("envs."))

    def in_progress(self, state: ProgramState) -> np.ndarray:
        """See `Runner.in_progress`. The lengths are those after the last iteration that `step` returned."""
        return state.totals.lengths

    def restart(self, state: ProgramState, iteration: int) -> ProgramState:
        """See `Runner.restart`. Requires that `state.ahead` is empty."""
        assert not state.ahead, "the device has run ahead of the iteration after which environments are to restart"
        learnt = self.learning.restart(state.learnt)
        fresh = self._fresh(state.seed, iteration, learnt, self._statistics(state))
        fresh.iteration = state.iteration
        return fresh

    def close(self) -> None:
        """See `Runner.close`."""
        try:
            jax.block_until_ready(self.given)  # environments must not be closed while a program steps them
        finally:
            self.env.close()

    def _fresh(self, seed: int, iteration: int, learnt: TrainState, statistics: Arrays) -> ProgramState:
        """State with environments reset by the key (seed, iteration).

        Running statistics are those in `statistics`, updated by the first observations.
        """
        with jax.default_device(self.learning.device), jax.enable_x64(True):
            start = self.env.reset(self.problem.env_seeds(seed, iteration))
            # Commits the arrays to the devices, like the program's results.
            envs = self.begun(start.state, start.seen, named("normalize", under("normalize", statistics)))
            envs = self.learning.devices.put(envs, specs_of_envs(envs))
        totals = no_totals(self.problem.num_envs)
        return ProgramState(seed, iteration, learnt, envs, totals, self.iterate(start.step, envs), start.step)

    def begun(self, state: Any, seen: Seen, statistics: Tree) -> Envs:
        """Environments that have just been reset to `state`, with the running `statistics` updated by what is `seen`.

        Requires 64-bit types to be enabled.
        """
        of_envs = [array for array in of_kinds(self._declared, Kind.ENVIRONMENT) if array.name.startswith("envs.")]
        stands = {array.name: jnp.full(array.shape, array.fill, array.dtype) for array in of_envs}
        carry = under("envs.carry", stands)
        apart = (*FOLDED, *named("envs.carry", carry))
        arrays = {name: array for name, array in stands.items() if name not in apart}
        arrays |= {name: jnp.array(array) for name, array in statistics.items()}
        shown = seen._asdict().items()
        arrays |= {f"envs.{name}": array for name, array in shown if name != "obs" and array is not None}
        arrays |= observed(jnp, self.problem, arrays, seen.obs, self.problem.across)
        return Envs(state, arrays, carry)

    def iterate(self, env_step: EnvStep, envs: Envs) -> Iterate:
        """Compiled iteration of `envs` with the step function `env_step`; cached by `env_step`."""
        if env_step not in self._compiled:
            self._compiled[env_step] = compiled(self.learning, env_step, envs)
        return self._compiled[env_step]
