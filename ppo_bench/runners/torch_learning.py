"""The gradient of a minibatch in PyTorch: taken operation by operation, or compiled into one graph."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.torch import Params, named_views
from ppo_bench.runners.computation import Computation


def clipped_gradient(
    computation: Computation,
    parameters: tuple[Parameter, ...],
    learnt: Tensor,
    frozen: Params,
    batch: Tree,
    rows: Tensor,
) -> tuple[Tensor, Tensor]:
    """The gradient `[P]` on the samples `rows`; what the loss measures and, last, the norm before clipping."""
    minibatch = computation.minibatch(batch, rows)

    def total(learnt: Tensor) -> tuple[Tensor, Tensor]:
        return computation.loss(named_views(learnt, parameters) | frozen, minibatch)

    gradient, reported = _gradient(total, learnt)
    norm = ppo.global_norm(torch, [gradient])
    return gradient * ppo.clip_scale(torch, norm, computation.ppo.max_grad_norm), torch.cat([reported, norm[None]])


def _gradient(total: Callable[[Tensor], tuple[Tensor, Tensor]], params: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the first of what `total` returns, and the second."""
    if torch.compiler.is_compiling():
        # A graph can be made of the functional form alone; operation by operation the tape is a third faster.
        gradient, reported = torch.func.grad(total, has_aux=True)(params)
        return gradient, reported
    with torch.enable_grad():
        loss, reported = total(params)
    return torch.autograd.grad(loss, params)[0], reported.detach()
