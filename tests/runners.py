"""Runners for tests: every framework that has a YAML file, on any environment."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.distributions import PolicyOutputs
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.runners.base import Episode, Metrics, Runner, TrainingSpec
from ppo_bench.runners.jax_seeds import JaxSeedsRunner

ACTING = [name for name in FRAMEWORKS if name != "torch_compile"]
"""Frameworks that differ in all but the update: the compiled one is PyTorch's there."""


@functools.cache
def composed(*overrides: str) -> Config:
    """The configuration of these overrides, composed once for all tests; not to be changed."""
    return load_config(overrides)


def problem_for(env: VectorEnv | GraphEnv, num_iterations: int, overrides: Sequence[str]) -> TrainingSpec:
    """`env` with the hyperparameters, network and precision of a configuration."""
    config = composed(f"ppo.num_envs={env.num_envs}", "backend=gymnasium", *overrides)
    return dataclasses.replace(config.training_spec(env), num_iterations=num_iterations, device="cpu")


def runner_for(framework: str, spec: TrainingSpec) -> Runner[Any]:
    """The runner of a framework with the options of its YAML file."""
    return composed(f"framework={framework}", "backend=gymnasium").framework.runner(spec)


def cartpole_problem(*overrides: str) -> TrainingSpec:
    """Ten iterations on CartPole of gymnasium."""
    config = composed("backend=gymnasium", *overrides)
    return problem_for(config.backend.make(config.task), 10, overrides)


def after_iterations(framework: str, spec: TrainingSpec, count: int, seed: int = 3) -> Arrays:
    """What a runner exports after some iterations."""
    runner = runner_for(framework, spec)
    state = runner.init(seed)
    for _ in range(count):
        state, _, _ = runner.iterate(state)
    return runner.export(state)


def played(
    runner: Runner[Any], seed: int, iterations: int, restart_after: int
) -> tuple[Arrays, list[Metrics], list[Episode]]:
    """Arrays at the end, and metrics and episodes of all iterations; environments restart after one of them."""
    state, rows, finished = runner.init(seed), list[Metrics](), list[Episode]()
    for i in range(1, iterations + 1):
        state, metrics, episodes = runner.iterate(state)
        rows.append(metrics)
        finished += episodes
        if i == restart_after:
            state = runner.restart_envs(state)
    arrays = runner.export(state)
    runner.close()
    return arrays, rows, finished


def policy_outputs_and_values(
    network: NetworkSpec, arrays: Arrays, observations: np.ndarray
) -> tuple[PolicyOutputs, np.ndarray]:
    """The policy's outputs and the values of exported parameters, by PyTorch in float64."""
    params = {p.name: torch.from_numpy(arrays[f"params.{p.name}"]).double() for p in network.parameters}
    obs = torch.from_numpy(network.to_input_layout(observations))
    policy_outputs, values, _ = network.forward(TorchOps(torch.float64, torch.float64), params, obs, {}, None)
    return tuple(part.numpy() for part in policy_outputs), values.numpy()


def assert_each_is_as_alone(
    together: JaxSeedsRunner, seeds: Sequence[int], alone: Mapping[int, Runner[Any]]
) -> list[Arrays]:
    """Train several runs in one program for four iterations; those of `alone` learn what they learn by themselves.

    Returns what each exports. Environments restart after the second iteration.
    """
    state, rows = together.init(seeds), []
    for i in range(4):
        state, measured = together.iterate(state, until=2 * (i // 2 + 1))
        rows.append(measured)
        if i == 1:
            state = together.restart_envs(state)
    ends = together.export(state)
    for k, runner in alone.items():
        expected, metrics, episodes = played(runner, seeds[k], 4, restart_after=2)
        found = [row[k][0] for row in rows]
        assert [[*each] for each in found] == [[*each] for each in metrics]
        numbers, others = ([[*each.values()] for each in run] for run in (found, metrics))
        np.testing.assert_allclose(numbers, others, rtol=1e-7, atol=1e-10)
        assert [episode for row in rows for episode in row[k][1]] == episodes
        assert ends[k].keys() == expected.keys()
        assert ends[k]["seed"] == seeds[k]
        for name, array in expected.items():
            assert ends[k][name].dtype == array.dtype, name
            np.testing.assert_allclose(ends[k][name], array, rtol=1e-7, atol=1e-10, err_msg=name)
    return ends


def relative_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Of `a` from `b`, in lengths of `b`."""
    return float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-30)
