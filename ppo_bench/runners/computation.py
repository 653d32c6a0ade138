"""The computations of a training beside the environments' steps, as pure functions over a framework's operations.

Every framework executes these and no others: one by one, compiled, recorded, or inside a program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ppo_bench.algorithms.base import Algorithm, Hyperparameters, Targets, loss_metrics_of
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array, Tree, under
from ppo_bench.networks.network import Acted, NetworkSpec, masked
from ppo_bench.networks.ops import Ops
from ppo_bench.runners.base import Problem
from ppo_bench.runners.declared import memory_arrays
from ppo_bench.runners.opponents import Sides

FLAGS = ("rewards", "terminated", "truncated", "valid", "acts")
"""Arrays of a rollout's steps that are learnt from, `[T, N]` each; see `Algorithm.targets`."""


class Computation(NamedTuple):
    """A problem's functions. `arrays` are its parameters and frozen arrays by name."""

    network: NetworkSpec
    algorithm: Algorithm
    ppo: Hyperparameters
    ops: Ops
    env_axes: Mapping[str, int]
    """The axis of the environments in each array of the memory."""
    rows: int
    """How many rows learn."""
    sides: Sides | None
    """Who plays which rows, arrays of the framework; None where all rows learn."""

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the scalars that `loss` measures, in order."""
        return tuple(metric.name for metric in loss_metrics_of(self.algorithm, self.network))

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags that learning takes: a memory also asks where it began anew."""
        return (*FLAGS, "start") if self.network.carry else FLAGS

    @property
    def num_samples(self) -> int:
        """How many samples minibatches are drawn from: transitions, or whole environments."""
        return self.rows * (1 if self.network.sequences else self.ppo.num_steps)

    # --- Noise --------------------------------------------------------------------------------------------------------

    def action_noise(
        self, seed: Array, iteration: Array, steps: Array, envs: Array, lanes: Array, dtype: object
    ) -> Array:
        """The noise of a whole iteration `[T + 1, N, A]`: Gumbel for categorical policies, else standard normal.

        `seed [1]`, `iteration [1]`, `steps [T + 1]`, `envs [N]` and `lanes [A]` are int32.
        """
        words = noise.action_words(self.ops.xp, seed, iteration, steps, envs, lanes)
        return (noise.gumbel if self.network.discrete else noise.normal)(self.ops.xp, words, dtype)

    # --- Acting -------------------------------------------------------------------------------------------------------

    def act_by_sides(
        self,
        arrays: Tree,
        opponent: Tree,
        obs: Array,
        noise_of_step: Array,
        carry: Tree,
        start: Array | None,
        legal: Array | None,
    ) -> Acted:
        """`NetworkSpec.act` for all rows, `[N, ...]`: each side by its own parameters, in a batch of its own."""
        assert self.sides is not None

        def of(params: Tree, rows: Array) -> Acted:
            def taken(x: Array | None) -> Array | None:
                return None if x is None else self.ops.take(x, rows, 0)

            carried = {name: taken(x) for name, x in carry.items()}
            seen, noise_of_rows = taken(obs), taken(noise_of_step)
            return self.network.act(self.ops, params, seen, noise_of_rows, carried, taken(start), taken(legal))

        own, theirs, order = of(arrays, self.sides.own), of(opponent, self.sides.theirs), self.sides.order

        def both(one: Array, other: Array) -> Array:
            return self.ops.take(self.ops.xp.concatenate((one, other)), order, 0)

        carry = {name: both(x, theirs.carry[name]) for name, x in own.carry.items()}
        actions, head, values = (both(*pair) for pair in zip(own[:3], theirs[:3], strict=True))
        return Acted(actions, head, values, carry)

    # --- Learning -----------------------------------------------------------------------------------------------------

    def targets(self, arrays: Tree, statistics: Tree, rollout: Tree) -> Targets:
        """The batch that minibatches are taken from; `rollout` has the memory, the `flags`, seed and iteration.

        Transitions lie one after the other, `[T * N, ...]`, and so do the rows of windows, `[(K + T) * N, ...]`; for a
        network that learns from sequences they keep their axes, `[T, N, ...]`, beside the carry before the first step,
        `[N, ...]`.
        """
        rollout = self._of_those_who_learn(rollout)
        targets = self.algorithm.targets(self.ops, self.network, self.ppo, arrays, statistics, rollout)
        batch = {"obs": rollout["obs"][:-1], "actions": rollout["actions"][:-1], **targets.batch}
        carry = {f"carry.{c.name}": rollout[f"carry.{c.name}"] for c in self.network.carry}
        if "legal" in rollout:
            batch["legal"] = rollout["legal"][:-1]
        if self.network.carry:
            batch["start"] = rollout["start"]
        if self.network.sequences:
            return targets._replace(batch=batch | carry)
        windows = {f"carry.{window.name}" for window in self.network.windows}
        batch |= {name: array if name in windows else array[:-1] for name, array in carry.items()}
        return targets._replace(batch={name: x.reshape((-1, *x.shape[2:])) for name, x in batch.items()})

    def _of_those_who_learn(self, rollout: Tree) -> Tree:
        """The same of the rows that learn."""
        if self.sides is None:
            return rollout
        axes = {**self.env_axes, **dict.fromkeys(self.flags, 1)}
        return {
            name: self.ops.take(x, self.sides.own, axes[name]) if name in axes else x for name, x in rollout.items()
        }

    def warmed(self, statistics: Tree, rollout: Tree) -> Tree:
        """See `Algorithm.warmed`."""
        return self.algorithm.warmed(self.ops, self.network, self.ppo, statistics, self._of_those_who_learn(rollout))

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the algorithm's statistics."""
        return tuple(statistic.name for statistic in self.algorithm.statistics(self.network))

    def minibatch(self, batch: Tree, rows: Array) -> Tree:
        """The samples `rows [M]` of a batch."""
        if self.network.sequences:
            return {name: self.ops.take(x, rows, self.env_axes.get(name, 1)) for name, x in batch.items()}
        windows = {f"carry.{window.name}": window.shape[0] for window in self.network.windows}
        taken = {name: self.ops.take(x, rows, 0) for name, x in batch.items() if name not in windows}
        for name, steps in windows.items():
            taken[name] = self.ops.take_windows(batch[name], rows, steps, self.rows)
        return taken

    def loss(self, arrays: Tree, minibatch: Tree) -> tuple[Array, Array]:
        """The minimised scalar, and what is measured `[M]` in the order of `loss_names`."""
        network, ops = self.network, self.ops
        obs, carry, start = minibatch["obs"], under("carry", minibatch), minibatch.get("start")
        own: Tree = {}
        if network.sequences:
            assert start is not None
            head, values = network.unroll(ops, arrays, obs, carry, start)
            first, values = (x.reshape((-1, *x.shape[2:])) for x in (head[0], values))
            head = (first, *head[1:])
            steps = {name: x for name, x in minibatch.items() if not name.startswith("carry.")}
            minibatch = {name: x.reshape((-1, *x.shape[2:])) for name, x in steps.items()}
        else:
            head, values, own = network.losses(ops, arrays, obs, carry, start)
        head = masked(ops.xp, head, minibatch.get("legal"))
        total, measured = self.algorithm.loss(ops, network, self.ppo, arrays, head, values, minibatch)
        total = total + sum(weight * own[name] for name, weight in network.own_losses.items())
        measured = {**measured, **own}
        return total, ops.xp.stack([measured[name] for name in self.loss_names])


def computation_of(problem: Problem, ops: Ops, placed: Callable[[Array], Array] = lambda rows: rows) -> Computation:
    """The functions of `problem`, executed with `ops`; `placed` are integers `[N]` where those take them from."""
    env_axes = {array.name: array.env_axis for array in memory_arrays(problem) if array.env_axis is not None}
    sides = None if problem.sides is None else Sides(*map(placed, problem.sides))
    return Computation(problem.network, problem.algorithm, problem.ppo, ops, env_axes, problem.learning_rows, sides)
