"""Functions of learning in PyTorch that can run eagerly, compiled, or as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.torch.ops import Params, named_views
from ppo_bench.runners.computation import Computation
from ppo_bench.runners.torch_state import TorchTrainState


def clipped_gradient(
    computation: Computation,
    parameters: tuple[Parameter, ...],
    learnt: Tensor,
    frozen: Params,
    batch: Tree,
    rows: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Clipped gradient `[P]` on the samples `rows`; the loss's scalars and, last, the gradient norm before clipping.

    `weights [W, B]` are those of `Computation.weights`. If devices share the minibatch, gradients and scalars are
    summed over devices in one reduction.
    """
    minibatch = computation.minibatch(batch, rows, weights)

    def total(learnt: Tensor) -> tuple[Tensor, Tensor]:
        return computation.loss(named_views(learnt, parameters) | frozen, minibatch)

    gradient, reported = _gradient(total, learnt)
    if computation.devices > 1:
        gradient, reported = computation.ops.total(torch.cat([gradient, reported])).split(
            [learnt.numel(), reported.numel()]
        )
    norm = ppo.global_norm(torch, [gradient])
    return gradient * ppo.clip_scale(torch, norm, computation.ppo.max_grad_norm), torch.cat([reported, norm[None]])


def _gradient(total: Callable[[Tensor], tuple[Tensor, Tensor]], params: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of the first result of `total` with respect to `params`, and the second result."""
    if torch.compiler.is_compiling():
        # Only the functional form can be compiled. Eagerly, the autograd tape is a third faster.
        gradient, reported = torch.func.grad(total, has_aux=True)(params)
        return gradient, reported
    with torch.enable_grad():
        loss, reported = total(params)
    return torch.autograd.grad(loss, params)[0], reported.detach()


@torch.no_grad()
def targets(computation: Computation, fixed: Any, *inputs: Tensor) -> Any:
    """`Computation.targets` as a `Recordable`: `fixed` are the policy's arrays and the rollout memory.

    `inputs` are the flags, the noise keys (seed, iteration, first row) and the statistics.
    """
    arrays, memory = fixed
    names = (*computation.flags, "seed", "iteration", "first_row")
    flags = dict(zip(names, inputs, strict=False))
    statistics = dict(zip(computation.statistics, inputs[len(names) :], strict=True))
    return computation.targets(arrays, statistics, memory | flags)


def learn(gradient: Callable[..., tuple[Tensor, Tensor]], fixed: Any, *inputs: Tensor) -> Tensor:
    """Do one Adam step; `fixed` are the state and the batch, `inputs` are `rows` and `weights` of `clipped_gradient`.

    Returns the scalars that `clipped_gradient` reports.
    """
    state, batch = fixed
    clipped, measured = gradient(state.learnt, state.frozen, batch, *inputs)
    state.adam.step(state.learnt, clipped)
    return measured


def learnt_by(state: TorchTrainState, batch: Tree) -> list[Tensor]:
    """Tensors that `learn` modifies."""
    return [state.learnt.detach(), state.adam.mean, state.adam.variance, state.adam.count]
