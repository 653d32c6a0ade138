"""GPU paths on a machine that has none: PyTorch's on tensors without data, JAX's programs lowered for each platform.

PyTorch's device without data refuses operations between two devices; JAX lowers for platforms that are not there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.flax import layers as flax_layers
from ppo_bench.networks.flax import ops as flax_ops
from ppo_bench.runners import program, torch_adam, torch_device
from ppo_bench.runners import torch as torch_runner
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.jax import JaxLearner
from ppo_bench.runners.jax_functions import JaxFunctions
from ppo_bench.runners.program_runner import ProgramRunner
from ppo_bench.runners.torch import TorchLearner
from tests.without_data import (
    CASES,
    arrays_of,
    masked_problem,
    problem_of,
    reads_zeros,
    seen_of,
)

pytestmark = pytest.mark.slow

# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """PyTorch's device without data, which has gradients: what lies on the host cannot be computed with there."""
    device = torch.device("meta")
    monkeypatch.setattr(torch_runner, "pick_device", lambda *_: device)
    reads_zeros(monkeypatch)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: torch.zeros(x.shape, dtype=x.dtype))
    monkeypatch.setattr(torch_adam, "adam", _product)  # whose kernel there is none of for this device
    yield device
    torch_device.set_precision(PRECISIONS["float32"])


def _product(
    params: Any, gradients: Any, means: Any, variances: Any, *rest: Any, lr: torch.Tensor, **more: Any
) -> None:
    """An operation on all that Adam's is on."""
    params[0].add_(gradients[0] * means[0] * variances[0] * lr)


def iteration(spec: TrainingSpec, device: torch.device) -> None:
    """One iteration of `torch_eager`'s learner, on random scenes."""
    learner = TorchLearner(spec, None)
    policy_input, rows = seen_of(spec), spec.ppo.num_envs
    state = learner.begin_rollout(learner.load(arrays_of(spec)), 1, 1)
    with learner.acting_context():
        for t in range(spec.ppo.num_steps + 1):
            state, actions = learner.act(state, t, policy_input)
            assert len(actions) == rows
    shape = (spec.ppo.num_steps, rows)
    flags = {name: np.zeros(shape, np.float32) for name in (*learner._update_functions.learning_arrays,)}
    if spec.algorithm.num_warmup_rollouts:
        state = learner.warmup(state, flags)
    state, _ = learner.update(state, flags, 1, 1, 1e-3)
    learner.export(learner.reset_env_statistics(state))
    for tensor in (state.flat_params, state.adam.mean, *state.rollout_buffer.values(), *state.statistics.values()):
        assert tensor.device.type == device.type


@pytest.mark.parametrize("case", CASES)
def test_a_whole_iteration_stays_on_its_device(case: str, elsewhere: torch.device) -> None:
    iteration(problem_of(case), elsewhere)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_and_masked_choices_stay_on_their_device(precision: str, elsewhere: torch.device) -> None:
    iteration(problem_of("nature_cnn", precision), elsewhere)
    iteration(masked_problem(precision), elsewhere)


def test_a_tensor_made_on_the_host_in_the_update_is_refused(
    elsewhere: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: a gradient times a vector that lies on the host."""
    clip_scale = ppo.clip_scale
    monkeypatch.setattr(ppo, "clip_scale", lambda *given: clip_scale(*given) * torch.ones(1))
    with pytest.raises(RuntimeError, match=r"meta.*cpu|cpu.*meta"):
        iteration(problem_of("mlp, choices"), elsewhere)


# --- JAX --------------------------------------------------------------------------------------------------------------

PLATFORMS = ("cuda", "rocm", "tpu")


@pytest.fixture
def no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are built as they are where there is an accelerator."""
    for module in (flax_layers, flax_ops):
        monkeypatch.setattr(module, "on_cpu", lambda: False)


def lowered(function: Any, *arguments: Any, platforms: Any = PLATFORMS) -> str:
    """The program for `platforms`. Raises where one lacks an operation."""
    return str(jax.jit(function).trace(*arguments).lower(lowering_platforms=platforms).as_text())


@pytest.mark.parametrize("case", CASES)
def test_programs_of_environments_on_the_host_are_lowered_for_every_platform(case: str, no_cpu: None) -> None:
    lower_host(problem_of(case))


@pytest.mark.parametrize("precision", ["bfloat16", "float64"])
def test_other_precisions_and_masked_choices_are_lowered(precision: str, no_cpu: None) -> None:
    lower_host(problem_of("nature_cnn", precision))
    lower_host(masked_problem(precision))


def lower_host(spec: TrainingSpec) -> None:
    learner = JaxLearner(spec)
    functions, rows = learner._functions, spec.ppo.num_envs
    state = learner.load(arrays_of(spec))
    start = np.ones(rows, bool) if state.carry else None
    action_mask = np.ones((rows, spec.network.actions.action_dim), bool) if spec.env.masks_actions else None
    obs = np.zeros((rows, *spec.network.input_shape), np.uint8 if spec.network.uint8 else np.float32)
    seed: Any = np.int32(1)
    number: Any = np.int32(1)
    noise = functions.action_noise(seed, number)
    policy_input = PolicyInput(obs, action_mask=action_mask, episode_start=start)
    lowered(functions.action_noise, seed, number)
    lowered(learner._act_for_host, state.arrays, state.rollout_buffer, state.carry, noise, np.int32(0), policy_input)
    flags = {name: np.zeros((spec.ppo.num_steps, rows), np.float32) for name in learner._flags}
    lowered(learner._targets_and_update, state.train_state, state.rollout_buffer, flags, seed, number, np.float32(1e-3))


@pytest.mark.parametrize(
    "words",
    [["env=cartpole"], ["env=minatar_breakout"], ["env=connect_four"], ["env=deep_sea"]],
    ids=" ".join,
)
def test_programs_with_environments_in_them_are_lowered(words: list[str], no_cpu: None) -> None:
    lower_program(words)


def lower_program(words: list[str], platforms: Any = PLATFORMS) -> str:
    own = ["framework=jax_xla", "backend=device", "ppo.num_envs=4", "ppo.num_steps=4", "ppo.num_minibatches=2"]
    config = load_config([*own, *words])
    env: Any = config.backend.make(config.task)
    runner = ProgramRunner(config.training_spec(env))
    functions: JaxFunctions = runner.functions
    state = runner.init(1)
    whole = functools.partial(program.iterate, functions)
    hyperparameters = {"scheduled_learning_rate": np.array(1e-3, functions.dtype)}
    arguments: Any = (state.train_state, state.envs, np.int32(1), hyperparameters, np.int32(1))
    text = lowered(whole, *arguments, platforms=platforms)
    runner.close()
    return text


@pytest.mark.parametrize(("target_kl", "conditions"), [("null", 0), ("0.1", 1)])
def test_a_program_has_no_condition_for_which_the_host_would_wait(
    target_kl: str, conditions: int, no_cpu: None
) -> None:
    text = lower_program(["env=cartpole", f"ppo.target_kl={target_kl}"], ("cuda",))
    assert text.count("stablehlo.case") + text.count("stablehlo.if") == conditions
