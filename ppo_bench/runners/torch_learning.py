"""The functions of a training in PyTorch that are run operation by operation, compiled, or recorded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.torch import Params, named_views
from ppo_bench.runners.computation import Computation
from ppo_bench.runners.torch_state import TorchTrainState


def clipped_gradient(
    computation: Computation,
    parameters: tuple[Parameter, ...],
    learnt: Tensor,
    frozen: Params,
    batch: Tree,
    rows: Tensor,
    whole: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradient `[P]` on the samples `rows`; what the loss measures and, last, the norm before clipping.

    Where devices share the minibatch, of which `whole [W]` has the statistics, their gradients and measurements are
    added in one reduction.
    """
    minibatch = computation.minibatch(batch, rows)

    def total(learnt: Tensor) -> tuple[Tensor, Tensor]:
        return computation.loss(named_views(learnt, parameters) | frozen, minibatch, whole)

    gradient, reported = _gradient(total, learnt)
    if whole is not None:
        gradient, reported = computation.ops.total(torch.cat([gradient, reported])).split(
            [learnt.numel(), reported.numel()]
        )
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


@torch.no_grad()
def targets(computation: Computation, fixed: Any, *inputs: Tensor) -> Any:
    """`Computation.targets`; `fixed` are arrays and memory, `inputs` the flags, keys of noise and
    statistics."""
    arrays, memory = fixed
    names = (*computation.flags, "seed", "iteration", "first_row")
    flags = dict(zip(names, inputs, strict=False))
    statistics = dict(zip(computation.statistics, inputs[len(names) :], strict=True))
    return computation.targets(arrays, statistics, memory | flags)


def learn(gradient: Callable[..., tuple[Tensor, Tensor]], fixed: Any, *inputs: Tensor) -> Tensor:
    """One step of Adam; `inputs` are those of `clipped_gradient`, and what it measured is returned."""
    state, batch = fixed
    clipped, measured = gradient(state.learnt, state.frozen, batch, *inputs)
    state.adam.step(state.learnt, clipped)
    return measured


def learnt_by(state: TorchTrainState, batch: Tree) -> list[Tensor]:
    """Tensors that `_learn` writes to."""
    return [state.learnt.detach(), state.adam.mean, state.adam.variance, state.adam.count]
