"""A large linear layer in PyTorch: of float32 on a CPU by oneDNN's products, not by MKL's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MANY_WEIGHTS = 2**19
"""So many, 2 MB, and oneDNN is faster: forward and backward 1.4 times for a minibatch, 1.8 times for a few rows
(docs/performance.md)."""
_HAS_ONEDNN = torch.backends.mkldnn.is_available()


def large_linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`x @ weight.T + bias` `[B, out]` of `x [B, in]`, `weight [out, in]` of at least `MANY_WEIGHTS` and `bias [out]`.

    It has first derivatives, not second ones.
    """
    if not (x.device.type == "cpu" and by_onednn(weight.numel(), x.dtype)):
        return F.linear(x, weight, bias)
    if not torch.is_grad_enabled():  # `apply` takes 0.3 ms where Python has left the caches, as between steps
        return product(x, weight, bias)
    # Views, since a compiler would give the very arguments of `torch.func.grad` no gradient.
    result: Tensor = _Linear.apply(x.view_as(x), weight.view_as(weight), bias)
    return result


def by_onednn(weights: int, dtype: torch.dtype) -> bool:
    """Whether a CPU's products with so many weights of this type are oneDNN's."""
    return weights >= MANY_WEIGHTS and dtype == torch.float32 and _HAS_ONEDNN


def _product(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    """`a @ b.T + bias` `[M, N]` of `a [M, K]`, `b [N, K]` and `bias [N]`, float32."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return result


def _shaped(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    return a.new_empty(a.shape[0], b.shape[0])


# An operation of this project's own, so that compiled graphs take views as they are: of oneDNN's they would copy them.
_LIBRARY = torch.library.Library("ppo_bench", "FRAGMENT")
_LIBRARY.define("product(Tensor a, Tensor b, Tensor? bias) -> Tensor", tags=torch.Tag.needs_exact_strides)
_LIBRARY.impl("product", _product, "CPU")
torch.library.register_fake("ppo_bench::product", _shaped)
product: Callable[[Tensor, Tensor, Tensor | None], Tensor] = torch.ops.ppo_bench.product


class _Linear(torch.autograd.Function):
    """`product` with its gradients, which are two more."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return product(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        x, weight, _ = inputs
        ctx.save_for_backward(x, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        of_x = product(gradient, weight.t(), None) if ctx.needs_input_grad[0] else None  # observations have none
        return of_x, product(gradient.t(), x.t(), None), gradient.sum(0)
