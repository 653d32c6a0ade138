"""Problems of every network and algorithm for tensors without data, and what reads these."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import ArrayRole, Arrays, default_arrays, select_roles
from ppo_bench.runners import torch as torch_runner
from ppo_bench.runners import torch_functions
from ppo_bench.runners.array_specs import array_specs, initial_arrays
from ppo_bench.runners.base import TrainingSpec
from tests.runners import problem_for
from tests.scenes import RandomScenes
from tests.seams import LEVELLED, SMALL
from tests.transcribed_layers import SIGHTS

RND = ["algorithm=rnd", "algorithm.features=8", "algorithm.warm_up_iterations=1"]
CASES: dict[str, tuple[bool, bool, list[str]]] = {
    "mlp, choices": (False, False, ["network=mlp"]),
    "mlp, floats": (False, True, ["network=mlp", "ppo=continuous", "ppo.num_minibatches=2", "ppo.num_steps=8"]),
    "nature_cnn": (True, False, ["network=nature_cnn"]),
    "impala_cnn": (True, False, ["network=impala_cnn"]),
    "combined": (False, True, ["network=combined", "ppo=continuous", "ppo.norm_obs=false", *SMALL]),
    "gru": (False, False, ["network=gru"]),
    "lstm_cnn": (True, False, ["network=lstm_cnn"]),
    "trxl": (False, False, ["network=trxl", "network.memory=4", "network.dim=16", "network.heads=2"]),
    "rnd": (False, False, ["network=mlp", *RND]),
    "an algorithm of one's own": (False, False, ["network=mlp", *LEVELLED]),
}
"""Networks and algorithms: whether observations are images, whether actions are floats, and the words."""


def record(learner: Any, recorded: Callable[[Any, Callable[..., Any]], Any], whole_update: bool) -> dict[str, Any]:
    """Replace the functions that a GPU records by `recorded(function, changed)`; return those by name."""
    found = {name: recorded(getattr(learner, name), lambda *_: ()) for name in ("_noise", "_policy")}
    update, changed = learner._update, torch_functions.updated_tensors
    if whole_update:
        found["_update"] = recorded(update, changed)
    else:
        functions, targets, gradient_step, *rest = update.args
        own = {"targets": recorded(targets, lambda *_: ()), "gradient_step": recorded(gradient_step, changed)}
        learner._update = functools.partial(update.func, functions, *own.values(), *rest)
    for name, function in found.items():
        setattr(learner, name, function)
    return found if whole_update else found | own


class MaskedScenes(RandomScenes):
    """Games of two rows that say which choices are legal."""

    masks_actions, players = True, 2

    def policy_input(self) -> PolicyInput:
        action_mask = np.ones((self.num_envs, 3), bool)
        action_mask[:, 1] = False
        return PolicyInput(self.reset([0]).obs, np.ones(self.num_envs, bool), action_mask, np.ones(self.num_envs, bool))


def problem_of(case: str, precision: str = "float32") -> TrainingSpec:
    """The spec of a case, on random scenes."""
    pixels, continuous, words = CASES[case]
    env: Any = RandomScenes(4, pixels, continuous)
    if pixels:
        env.observation_space = type(env.observation_space)(0, 255, (4, 84, 84), np.uint8)
    if case == "combined":
        env.observation_space = SIGHTS
    return problem_for(env, 2, [*SMALL, *words, f"precision={precision}"])


def masked_problem(precision: str = "float32") -> TrainingSpec:
    """A spec with action masks."""
    words = [*SMALL, "network=mlp"]
    return problem_for(MaskedScenes(4, False, False), 2, [*words, f"precision={precision}"])


def seen_of(spec: TrainingSpec) -> PolicyInput:
    """What the policy of a spec sees first."""
    env: Any = spec.env
    policy_input = env.policy_input() if isinstance(env, MaskedScenes) else PolicyInput(env.reset([0]).obs)
    return policy_input._replace(
        obs=spec.network.to_input_layout(policy_input.obs), episode_start=np.ones(spec.ppo.num_envs, bool)
    )


def arrays_of(spec: TrainingSpec) -> Arrays:
    """The arrays with which a run of a spec begins."""
    return initial_arrays(spec, 1) | default_arrays(select_roles(array_specs(spec), ArrayRole.ENVIRONMENT))


def reads_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """A patch by which zeros are read back from tensors without data."""
    types: Any = {torch.int64: np.int64, torch.bool: np.bool_, torch.float64: np.float64}

    def zeros(x: torch.Tensor) -> np.ndarray:
        return np.zeros(tuple(x.shape), types.get(x.dtype, np.float32))

    monkeypatch.setattr(torch.Tensor, "numpy", _from_the_host_alone(zeros))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: zeros(x).tolist())
    monkeypatch.setattr(torch.Tensor, "__float__", lambda x: 0.0)
    monkeypatch.setattr(torch_runner, "set_threads", lambda _: None)


def _from_the_host_alone(zeros: Any) -> Any:
    def numpy(x: torch.Tensor) -> np.ndarray:
        assert x.device.type == "cpu", "an array of NumPy's is asked for of a tensor on the GPU"
        array: np.ndarray = zeros(x)
        return array

    return numpy
