"""`precision=` means the same in every framework, and is recorded."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.tuning import machine
from tests.probes import Endless
from tests.processes import TRAIN
from tests.runners import ACTING, problem_for, runner_for
from tests.scenes import RandomScenes
from tests.training import ENVIRONMENT


def test_layers_in_bfloat16_round_inputs_weights_and_outputs() -> None:
    """One linear layer each for actor and critic, whose sums are known numbers."""
    network = problem_for(Endless(1), 1, ["network=mlp", "network.hidden_sizes=[]"]).network
    inputs = network.input_shape[0]
    # 1 + 2^-9 rounds to 1 in bfloat16 (8 bits), 3 stays.
    weights = {p.name: np.zeros(p.shape, np.float32) for p in network.parameters}
    weights["critic.0.weight"][:] = 1.0 + 2.0**-9
    weights["critic.0.bias"][:] = 3.0
    obs = np.zeros((1, inputs), np.float32)
    obs[0, 0] = 1.0
    params = {name: torch.from_numpy(array) for name, array in weights.items()}
    found = [
        float(network.forward(TorchOps(torch.float32, layers), params, torch.from_numpy(obs), {}, None).values[0])
        for layers in (torch.float32, torch.bfloat16)
    ]
    arrays = {name: jnp.asarray(array) for name, array in weights.items()}
    found += [
        float(
            network.forward(JaxOps(jnp.dtype("float32"), jnp.dtype(name)), arrays, jnp.asarray(obs), {}, None).values[0]
        )
        for name in ("float32", "bfloat16")
    ]
    assert found == [4.0 + 2.0**-9, 4.0] * 2


@pytest.mark.parametrize(("pixels", "continuous"), [(False, False), (False, True), (True, False)])
def test_frameworks_agree_in_bfloat16_to_its_rounding_and_not_with_float32(pixels: bool, continuous: bool) -> None:
    network = problem_for(RandomScenes(4, pixels, continuous), 1, []).network
    weights = {name: array.astype(np.float32) for name, array in initial_weights(network.parameters, 1).items()}
    env = RandomScenes(4, pixels, continuous)
    obs = network.to_input_layout(env.reset([1, 2, 3, 4]).obs)
    params = {name: torch.from_numpy(array) for name, array in weights.items()}
    exact, rounded = (
        network.forward(TorchOps(torch.float32, layers), params, torch.from_numpy(np.ascontiguousarray(obs)), {}, None)
        for layers in (torch.float32, torch.bfloat16)
    )
    by_jax = network.forward(JaxOps(jnp.dtype("float32"), jnp.dtype("bfloat16")), weights, obs, {}, None)
    assert rounded.values.dtype == torch.float32
    assert by_jax.values.dtype == jnp.float32
    values, expected, unrounded = np.asarray(by_jax.values), rounded.values.numpy(), exact.values.numpy()
    scale = np.abs(unrounded).max()
    assert np.abs(values - expected).max() < 2.0**-6 * scale  # a few roundings of 2^-9
    assert np.abs(expected - unrounded).max() > 1e-5 * scale
    if continuous:
        np.testing.assert_array_equal(np.asarray(by_jax.policy_outputs[1]), rounded.policy_outputs[1].numpy())


def after(framework: str, precision: str, iterations: int) -> tuple[Arrays, dict[str, object]]:
    runner = runner_for(framework, problem_for(RandomScenes(4, False, False), 10, [f"precision={precision}"]))
    state = runner.init(1)
    for _ in range(iterations):
        state, metrics, _ = runner.iterate(state)
        assert np.isfinite(metrics["policy_loss"])
    return runner.export(state), dict(runner.execution)


@pytest.mark.parametrize("framework", ["torch_eager", pytest.param("jax_xla", marks=pytest.mark.slow)])
def test_bfloat16_keeps_parameters_and_moments_in_float32_and_is_recorded(framework: str) -> None:
    start, _ = after(framework, "bfloat16", 0)
    arrays, execution = after(framework, "bfloat16", 2)
    for name, array in arrays.items():
        if name.startswith(("params.", "adam.mean.")):
            assert array.dtype == np.float32, name
    assert any(not np.array_equal(arrays[n], start[n]) for n in arrays if n.startswith("params."))
    recorded = execution["precision"]
    assert isinstance(recorded, dict)
    assert PRECISIONS["bfloat16"]._asdict().items() <= recorded.items()
    in_float32, _ = after(framework, "float32", 2)
    assert any(not np.array_equal(arrays[n], in_float32[n]) for n in arrays if n.startswith("params."))


@pytest.mark.parametrize("framework", ["torch_eager", pytest.param("jax_xla", marks=pytest.mark.slow)])
def test_a_training_in_float64_leaves_the_next_one_of_the_process_as_it_is(framework: str) -> None:
    before, between, afterwards = (after(framework, each, 2)[0] for each in ("float32", "float64", "float32"))
    assert between["params.actor.0.weight"].dtype == np.float64
    for name, array in before.items():
        np.testing.assert_array_equal(afterwards[name], array, err_msg=name)


@pytest.mark.parametrize("framework", ACTING)
def test_tf32_is_refused_where_there_is_none(framework: str) -> None:
    spec = problem_for(RandomScenes(4, False, False), 10, [])
    with pytest.raises(ConfigError, match="precision=tf32 needs a GPU"):
        runner_for(framework, dataclasses.replace(spec, precision="tf32"))


no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


@no_gpu
def test_a_gpu_with_which_jax_cannot_begin_is_one_line() -> None:
    options = ["framework=jax_xla", "backend=device", "device=cpu", "total_timesteps=512"]
    command = [*TRAIN, *options]
    environment = ENVIRONMENT | {"JAX_PLATFORMS": "cuda"}  # which is not there
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    line = run.stderr.splitlines()[-1]
    assert line.startswith("ppo_bench: device=cpu: JAX cannot begin (")
    assert line.endswith("JAX_PLATFORMS=cpu leaves out GPUs")


@no_gpu
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_gpu_that_no_framework_sees_is_said_unless_it_is_hidden_on_purpose(
    framework: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "0000:01:00.0").touch()
    monkeypatch.setattr(machine, "NVIDIA_GPUS", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    spec = dataclasses.replace(problem_for(RandomScenes(4, False, False), 10, []), device="auto")
    with pytest.raises(ConfigError, match=r"this machine has an NVIDIA GPU and .* sees none"):
        runner_for(framework, spec)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "cpu" in str(runner_for(framework, spec).execution["device"]).lower()
