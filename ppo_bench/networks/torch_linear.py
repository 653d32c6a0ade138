"""A linear layer in PyTorch; a large one of float32 on a CPU by oneDNN's products, not by MKL's."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MANY_WEIGHTS = 2**19
"""So many, 2 MB, and oneDNN is faster: by a fifth for a minibatch, twice for a few rows (docs/performance.md)."""
_HAS_ONEDNN = torch.backends.mkldnn.is_available()


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x @ weight.T + bias` `[B, out]` of `x [B, in]`, `weight [out, in]` and `bias [out]`."""
    large = weight.numel() >= MANY_WEIGHTS
    if not (large and x.dtype == torch.float32 and x.device.type == "cpu" and _HAS_ONEDNN):
        return F.linear(x, weight, bias)
    # Without a gradient the operation alone: `apply` takes 0.3 ms where Python has left the caches, as between steps.
    result: Tensor = (_Linear.apply if torch.is_grad_enabled() else product)(x, weight, bias)
    return result


def _by_onednn(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """`a @ b.T + bias` `[M, N]` of `a [M, K]`, `b [N, K]` and `bias [N]`, float32."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return result


def _shaped(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


# An operation of this project's own, so that compiled graphs take views as they are: of oneDNN's they would copy them.
_LIBRARY = torch.library.Library("ppo_bench", "FRAGMENT")
_LIBRARY.define("product(Tensor a, Tensor b, Tensor? bias) -> Tensor", tags=torch.Tag.needs_exact_strides)
_LIBRARY.impl("product", _by_onednn, "CPU")
torch.library.register_fake("ppo_bench::product", _shaped)
product = torch.ops.ppo_bench.product


class _Linear(torch.autograd.Function):
    """`product` with its gradients, which are two more."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        result: Tensor = product(x, weight, bias)
        return result

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        of_x = product(gradient, weight.t(), None) if ctx.needs_input_grad[0] else None  # observations have none
        return of_x, product(gradient.t(), x.t(), None), gradient.sum(0)
