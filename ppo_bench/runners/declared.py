"""Declarations of all arrays of a training: of the network, the algorithm, the environments and the rollout memory."""

from __future__ import annotations

import numpy as np

from ppo_bench.algorithms.base import Statistic
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import KEPT, Arrays, Declared, Kind, filled, of_kinds
from ppo_bench.mathematics.precision import PRECISIONS, Precision
from ppo_bench.mathematics.weights import Parameter, initial_weights
from ppo_bench.networks.network import Carry, NetworkSpec
from ppo_bench.runners.base import Problem

COUNTERS = tuple(Declared(name, (), "int64", Kind.STATISTIC) for name in ("seed", "iteration"))
"""Seed of the run, and number of iterations done."""


def learner_arrays(problem: Problem) -> tuple[Declared, ...]:
    """Arrays of learning: parameters, Adam's moments and step, frozen arrays, algorithm statistics."""
    dtype, algorithm = PRECISIONS[problem.precision].parameters, problem.algorithm

    def of(prefix: str, parameters: tuple[Parameter, ...], kind: Kind) -> list[Declared]:
        return [Declared(f"{prefix}.{p.name}", p.shape, dtype, kind) for p in parameters]

    return (
        *of("params", problem.parameters, Kind.LEARNT),
        *of("adam.mean", problem.parameters, Kind.STATISTIC),
        *of("adam.variance", problem.parameters, Kind.STATISTIC),
        Declared("adam.step", (), "int64", Kind.STATISTIC),
        *of("frozen", algorithm.frozen(problem.network), Kind.FROZEN),
        *(_statistic(s, problem.num_envs, dtype) for s in algorithm.statistics(problem.network, problem.ppo)),
    )


def _statistic(statistic: Statistic, num_envs: int, dtype: str) -> Declared:
    name = f"statistics.{statistic.name}"
    if not statistic.of_each_env:
        return Declared(name, statistic.shape, dtype, Kind.STATISTIC, statistic.fill)
    return Declared(name, (num_envs, *statistic.shape), dtype, Kind.ENVIRONMENT, statistic.fill, env_axis=0)


def policy_arrays(network: NetworkSpec, precision: Precision) -> tuple[Declared, ...]:
    """Network parameters, as needed for inference."""
    return tuple(Declared(f"params.{p.name}", p.shape, precision.parameters, Kind.LEARNT) for p in network.parameters)


def carry_arrays(problem: Problem) -> tuple[Declared, ...]:
    """Carry (recurrent state) of the network in each environment, `[N, ...]`."""
    rows, dtype = problem.num_envs, PRECISIONS[problem.precision].parameters
    return tuple(
        Declared(f"envs.carry.{carry.name}", (rows, *carry.shape), dtype, Kind.ENVIRONMENT, env_axis=0)
        for carry in problem.network.carry
    )


def memory_arrays(problem: Problem) -> tuple[Declared, ...]:
    """Rollout memory: what the policy observed and did, `[T + 1, N, ...]`; the last row is for the final observations.

    `heads` is the first part of the policy's head: logits or mean. The carry is stored before each step, or, for a
    network that learns from sequences, only before the first step, `[N, ...]`. A window over K steps is stored as
    `[K + T, N, ...]`: K rows from before the first step, then one row per step.
    """
    network, rows = problem.network, (problem.ppo.num_steps + 1, problem.num_envs)
    dtype = PRECISIONS[problem.precision].parameters

    def stored(name: str, shape: tuple[int, ...], kind: str = dtype) -> Declared:
        return Declared(name, (*rows, *shape), kind, Kind.MEMORY, env_axis=1)

    def carried(carry: Carry) -> Declared:
        if carry.window:
            rows_of_window = (carry.shape[0] + problem.ppo.num_steps, problem.num_envs, *carry.shape[1:])
            return Declared(f"carry.{carry.name}", rows_of_window, dtype, Kind.MEMORY, env_axis=1)
        if network.sequences:
            return Declared(f"carry.{carry.name}", (rows[1], *carry.shape), dtype, Kind.MEMORY, env_axis=0)
        return stored(f"carry.{carry.name}", carry.shape)

    streams = () if len(problem.algorithm.streams) == 1 else (len(problem.algorithm.streams),)
    return (
        stored("obs", network.input_shape, "uint8" if network.uint8 else dtype),
        stored("actions", network.actions.shape, "int64" if network.discrete else dtype),
        stored("heads", (network.actions.lanes,)),
        stored("values", streams),
        *([stored("legal", (network.actions.lanes,), "bool")] if problem.env.masks_actions else []),
        *(carried(carry) for carry in network.carry),
    )


def normalization_arrays(observation_shape: tuple[int, ...]) -> tuple[Declared, ...]:
    """Running statistics of observations of this shape and of discounted returns, for normalisation."""
    fills = {"mean": 0.0, "var": 1.0, "count": normalize.INITIAL_COUNT}
    return tuple(
        Declared(f"normalize.{of}.{field}", () if field == "count" else shape, "float64", Kind.STATISTIC, fills[field])
        for of, shape in (("obs", observation_shape), ("return", ()))
        for field in normalize.RunningStats._fields
    )


def env_arrays(problem: Problem) -> tuple[Declared, ...]:
    """State of the environments between two iterations, `[N, ...]`.

    `obs` has the network's input layout; `done` is true if the next step only resets the environment; `start`, `acts`
    and `legal` are as in `ppo_bench.envs.base.Seen`; `returns` and `lengths` are those of the current episode so far;
    `discounted_returns` serve to normalise rewards.
    """
    rows, raw = problem.num_envs, problem.env.observation_space.dtype
    fields: dict[str, tuple[tuple[int, ...], str, float]] = {
        "obs": (problem.network.input_shape, "float64" if problem.ppo.norm_obs else str(raw), 0.0),
        "done": ((), "bool", False),
        "start": ((), "bool", True),
        "acts": ((), "bool", True),
        **({"legal": ((problem.network.actions.lanes,), "bool", True)} if problem.env.masks_actions else {}),
        "returns": ((), "float64", 0.0),
        "lengths": ((), "int64", 0),
        "discounted_returns": ((), "float64", 0.0),
    }
    return tuple(
        Declared(f"envs.{name}", (rows, *shape), dtype, Kind.ENVIRONMENT, fill, env_axis=0)
        for name, (shape, dtype, fill) in fields.items()
    )


def declared_arrays(problem: Problem) -> tuple[Declared, ...]:
    """All arrays of a training."""
    return (
        *COUNTERS,
        *learner_arrays(problem),
        *normalization_arrays(problem.env.observation_space.shape),
        *env_arrays(problem),
        *carry_arrays(problem),
        *memory_arrays(problem),
    )


def initial_arrays(problem: Problem, seed: int) -> Arrays:
    """Initial arrays of a training with weights drawn from `seed`; the state of the environments is not included."""
    begun = filled(of_kinds(declared_arrays(problem), *KEPT))
    frozen = problem.algorithm.frozen(problem.network)
    drawn = initial_weights((*problem.parameters, *frozen), seed) | problem.network.initial(seed)
    begun |= {f"params.{p.name}": drawn[p.name] for p in problem.parameters}
    begun |= {f"frozen.{p.name}": drawn[p.name] for p in frozen} | {"seed": np.array(seed)}
    return begun


def of_zeros(problem: Problem) -> Arrays:
    """Parameters of zeros: their policy ignores observations; it is uniform over choices, or standard normal."""
    return {f"params.{p.name}": np.zeros(p.shape, np.float32) for p in problem.parameters}
