"""Large linear layers of PyTorch on a CPU are oneDNN's, with float64's sums and gradients; others are as they come."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ppo_bench.networks import torch_linear
from ppo_bench.networks.torch import linear
from ppo_bench.networks.torch_linear import MANY_WEIGHTS

ROOT = Path(__file__).parent.parent
ROWS, INPUTS, OUTPUTS = 24, 2**11, MANY_WEIGHTS // 2**11


def layer(inputs: int = INPUTS, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, weights and biases; the weights are a view in the middle of a vector, as those of a network are."""
    generator = torch.Generator().manual_seed(1)
    numbers = torch.randn(ROWS * inputs + OUTPUTS * inputs + OUTPUTS + 7, generator=generator, dtype=torch.float64)
    x, _, weight, bias = numbers.to(dtype).split([ROWS * inputs, 7, OUTPUTS * inputs, OUTPUTS])
    return x.view(ROWS, inputs), weight.view(OUTPUTS, inputs), bias


def loss(way: Callable[..., Tensor], *layer: Tensor) -> Tensor:
    return torch.tanh(way(*layer) / INPUTS**0.5).square().sum()


def by_tape(way: Callable[..., Tensor], layer: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    parts = tuple(part.requires_grad_() for part in layer)
    return torch.autograd.grad(loss(way, *parts), parts)


def by_function(way: Callable[..., Tensor], layer: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    gradients: tuple[Tensor, ...] = torch.func.grad(lambda *parts: loss(way, *parts), (0, 1, 2))(*layer)
    return gradients


def by_compiled_function(way: Callable[..., Tensor], layer: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """As a compiled update takes them, without its C++."""
    gradients = torch.compile(by_function, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        found: tuple[Tensor, ...] = gradients(way, layer)
    return found


@pytest.mark.parametrize("gradients", [by_tape, by_function, by_compiled_function])
def test_sums_and_gradients_are_those_of_float64(gradients: Callable[..., tuple[Tensor, ...]]) -> None:
    precise = layer(dtype=torch.float64)
    torch.testing.assert_close(linear(*layer()).double(), F.linear(*precise), rtol=1e-5, atol=5e-4)
    expected = by_tape(F.linear, precise)
    for found, part in zip(gradients(linear, layer()), expected, strict=True):
        torch.testing.assert_close(found.double(), part, rtol=1e-5, atol=1e-6)


class Operations(TorchDispatchMode):
    """The names of all that is executed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("inputs", "dtype", "by"),
    [
        (INPUTS, torch.float32, "ppo_bench.product.default"),
        (INPUTS - 1, torch.float32, "aten.addmm.default"),
        (INPUTS, torch.float64, "aten.addmm.default"),
        (INPUTS, torch.bfloat16, "aten.addmm.default"),
    ],
)
def test_which_products_are_whose(inputs: int, dtype: torch.dtype, by: str) -> None:
    with Operations() as executed:
        linear(*layer(inputs, dtype))
    assert {"ppo_bench.product.default", "aten.addmm.default"} & {*executed.names} == {by}


def test_acting_takes_the_operation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch_linear._Linear, "forward")
    with torch.inference_mode(), Operations() as executed:
        linear(*layer())
    assert executed.names[-1:] == ["ppo_bench.product.default"]


def test_observations_have_no_gradient() -> None:
    x, weight, bias = layer()
    with Operations() as executed:
        torch.autograd.grad(loss(linear, x, weight.requires_grad_(), bias), weight)
    assert executed.names.count("ppo_bench.product.default") == 2


def test_a_compiled_network_with_a_large_layer_is_kept_for_other_processes(tmp_path: Path) -> None:
    """Both what was traced and what was compiled: PyTorch's traces of others' functions are kept only if asked for."""
    command = [sys.executable, "-m", "ppo_bench", "framework=torch_compile", "device=cpu", "total_timesteps=512"]
    options = ["network=mlp", "network.hidden_sizes=[1024,512]", f"framework.compile_cache={tmp_path}"]
    command += [*options, f"outputs={tmp_path}/outputs"]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)})
    for kind in ("aotautograd", "fxgraph"):
        assert list((tmp_path / "torch" / kind).iterdir())
