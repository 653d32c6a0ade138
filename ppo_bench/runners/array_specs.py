"""Declarations of all arrays of a training: of the network, the algorithm, the environments and the rollout buffer."""

from __future__ import annotations

import numpy as np

from ppo_bench.algorithms.base import Statistic
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import PERSISTENT_ROLES, ArrayRole, Arrays, ArraySpec, default_arrays, select_roles
from ppo_bench.mathematics.precision import PRECISIONS, Precision
from ppo_bench.mathematics.weights import Parameter, initial_weights
from ppo_bench.networks.network import CarrySpec, NetworkSpec
from ppo_bench.runners.base import TrainingSpec

COUNTERS = tuple(ArraySpec(name, (), "int64", ArrayRole.STATISTIC) for name in ("seed", "iteration"))
"""Seed of the run, and number of iterations done."""


def learner_array_specs(spec: TrainingSpec) -> tuple[ArraySpec, ...]:
    """Arrays of learning: parameters, Adam's moments and step, frozen arrays, algorithm statistics."""
    dtype, algorithm = PRECISIONS[spec.precision].parameters, spec.algorithm

    def of(prefix: str, parameters: tuple[Parameter, ...], role: ArrayRole) -> list[ArraySpec]:
        return [ArraySpec(f"{prefix}.{p.name}", p.shape, dtype, role) for p in parameters]

    return (
        *of("params", spec.parameters, ArrayRole.PARAMETER),
        *of("adam.mean", spec.parameters, ArrayRole.STATISTIC),
        *of("adam.variance", spec.parameters, ArrayRole.STATISTIC),
        ArraySpec("adam.step", (), "int64", ArrayRole.STATISTIC),
        *of("frozen", algorithm.frozen_parameters(spec.network), ArrayRole.FROZEN),
        *(_statistic(s, spec.num_envs, dtype) for s in algorithm.statistics(spec.network, spec.ppo)),
    )


def _statistic(statistic: Statistic, num_envs: int, dtype: str) -> ArraySpec:
    name = f"statistics.{statistic.name}"
    if not statistic.is_per_env:
        return ArraySpec(name, statistic.shape, dtype, ArrayRole.STATISTIC, statistic.fill)
    return ArraySpec(name, (num_envs, *statistic.shape), dtype, ArrayRole.ENVIRONMENT, statistic.fill, env_axis=0)


def policy_array_specs(network: NetworkSpec, precision: Precision) -> tuple[ArraySpec, ...]:
    """Network parameters, as needed for inference."""
    return tuple(
        ArraySpec(f"params.{p.name}", p.shape, precision.parameters, ArrayRole.PARAMETER) for p in network.parameters
    )


def carry_array_specs(spec: TrainingSpec) -> tuple[ArraySpec, ...]:
    """Carry (recurrent state) of the network in each environment, `[N, ...]`."""
    rows, dtype = spec.num_envs, PRECISIONS[spec.precision].parameters
    return tuple(
        ArraySpec(f"envs.carry.{carry.name}", (rows, *carry.shape), dtype, ArrayRole.ENVIRONMENT, env_axis=0)
        for carry in spec.network.carry
    )


def rollout_array_specs(spec: TrainingSpec) -> tuple[ArraySpec, ...]:
    """Rollout buffer: what the policy observed and did, `[T + 1, N, ...]`; the last row is for the final observations.

    `logits_or_mean` is the first part of the policy's outputs. The carry is stored before each step, or, for a
    network that learns from sequences, only before the first step, `[N, ...]`. A window over K steps is stored as
    `[K + T, N, ...]`: K rows from before the first step, then one row per step.
    """
    network, rows = spec.network, (spec.ppo.num_steps + 1, spec.num_envs)
    dtype = PRECISIONS[spec.precision].parameters

    def rollout_array(name: str, shape: tuple[int, ...], kind: str = dtype) -> ArraySpec:
        return ArraySpec(name, (*rows, *shape), kind, ArrayRole.ROLLOUT, env_axis=1)

    def carry_array(carry: CarrySpec) -> ArraySpec:
        if carry.window:
            rows_of_window = (carry.shape[0] + spec.ppo.num_steps, spec.num_envs, *carry.shape[1:])
            return ArraySpec(f"carry.{carry.name}", rows_of_window, dtype, ArrayRole.ROLLOUT, env_axis=1)
        if network.learns_from_sequences:
            return ArraySpec(f"carry.{carry.name}", (rows[1], *carry.shape), dtype, ArrayRole.ROLLOUT, env_axis=0)
        return rollout_array(f"carry.{carry.name}", carry.shape)

    streams = () if len(spec.algorithm.streams) == 1 else (len(spec.algorithm.streams),)
    return (
        rollout_array("obs", network.input_shape, "uint8" if network.uint8 else dtype),
        rollout_array("actions", network.actions.shape, "int64" if network.discrete else dtype),
        rollout_array("logits_or_mean", (network.actions.action_dim,)),
        rollout_array("values", streams),
        *([rollout_array("action_mask", (network.actions.action_dim,), "bool")] if spec.env.masks_actions else []),
        *(carry_array(carry) for carry in network.carry),
    )


def normalization_array_specs(observation_shape: tuple[int, ...]) -> tuple[ArraySpec, ...]:
    """Running statistics of observations of this shape and of discounted returns, for normalisation."""
    fills = {"mean": 0.0, "var": 1.0, "count": normalize.INITIAL_COUNT}
    return tuple(
        ArraySpec(
            f"normalize.{of}.{field}", () if field == "count" else shape, "float64", ArrayRole.STATISTIC, fills[field]
        )
        for of, shape in (("obs", observation_shape), ("return", ()))
        for field in normalize.RunningStats._fields
    )


def env_array_specs(spec: TrainingSpec) -> tuple[ArraySpec, ...]:
    """State of the environments between two iterations, `[N, ...]`.

    They are the fields of `PolicyInput` and four more. `obs` has the network's input layout; `done` is true if the next
    step only resets the environment; `returns` and `lengths` are those of the current episode so far;
    `discounted_returns` serve to normalise rewards.
    """
    rows, raw = spec.num_envs, spec.env.observation_space.dtype
    fields: dict[str, tuple[tuple[int, ...], str, float]] = {
        "obs": (spec.network.input_shape, "float64" if spec.ppo.norm_obs else str(raw), 0.0),
        "done": ((), "bool", False),
        "episode_start": ((), "bool", True),
        "policy_mask": ((), "bool", True),
        **({"action_mask": ((spec.network.actions.action_dim,), "bool", True)} if spec.env.masks_actions else {}),
        "returns": ((), "float64", 0.0),
        "lengths": ((), "int64", 0),
        "discounted_returns": ((), "float64", 0.0),
    }
    return tuple(
        ArraySpec(f"envs.{name}", (rows, *shape), dtype, ArrayRole.ENVIRONMENT, fill, env_axis=0)
        for name, (shape, dtype, fill) in fields.items()
    )


def array_specs(spec: TrainingSpec) -> tuple[ArraySpec, ...]:
    """All arrays of a training."""
    return (
        *COUNTERS,
        *learner_array_specs(spec),
        *normalization_array_specs(spec.env.observation_space.shape),
        *env_array_specs(spec),
        *carry_array_specs(spec),
        *rollout_array_specs(spec),
    )


def initial_arrays(spec: TrainingSpec, seed: int) -> Arrays:
    """Initial arrays of a training with weights drawn from `seed`; the state of the environments is not included."""
    initial = default_arrays(select_roles(array_specs(spec), *PERSISTENT_ROLES))
    frozen = spec.algorithm.frozen_parameters(spec.network)
    drawn = initial_weights((*spec.parameters, *frozen), seed) | spec.network.initial_params(seed)
    initial |= {f"params.{p.name}": drawn[p.name] for p in spec.parameters}
    initial |= {f"frozen.{p.name}": drawn[p.name] for p in frozen} | {"seed": np.array(seed)}
    return initial


def zero_params(spec: TrainingSpec) -> Arrays:
    """Parameters of zeros: their policy ignores observations; it is uniform over choices, or standard normal."""
    return {f"params.{p.name}": np.zeros(p.shape, np.float32) for p in spec.parameters}
