"""Functions of learning in PyTorch that can run eagerly, compiled, or as CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ppo_bench.algorithms.base import Targets
from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.torch.ops import Params, parameter_views
from ppo_bench.runners.torch_state import TorchTrainState
from ppo_bench.runners.update_functions import UpdateFunctions


def clipped_gradient(
    update_functions: UpdateFunctions,
    parameters: tuple[Parameter, ...],
    flat_params: Tensor,
    frozen: Params,
    batch: Tree,
    rows: Tensor,
    weights: Tensor,
) -> tuple[Tensor, Tensor]:
    """Clipped gradient `[P]` on the samples `rows`; the loss's scalars and, last, the gradient norm before clipping.

    `weights [W, B]` are those of `UpdateFunctions.weights`. If devices share the minibatch, gradients and scalars are
    summed over devices in one reduction.
    """
    minibatch = update_functions.minibatch(batch, rows, weights)

    def total(flat_params: Tensor) -> tuple[Tensor, Tensor]:
        return update_functions.loss(parameter_views(flat_params, parameters) | frozen, minibatch)

    gradient, reported = _gradient(total, flat_params)
    if update_functions.devices > 1:
        gradient, reported = update_functions.ops.all_reduce_sum(torch.cat([gradient, reported])).split(
            [flat_params.numel(), reported.numel()]
        )
    norm = ppo.global_norm(torch, [gradient])
    return gradient * ppo.clip_scale(torch, norm, update_functions.ppo.max_grad_norm), torch.cat([reported, norm[None]])


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
def targets(update_functions: UpdateFunctions, fixed: Any, *inputs: Tensor) -> Any:
    """`UpdateFunctions.targets` for a `GraphedCallable`: `fixed` are the policy's arrays and the rollout buffer.

    `inputs` are the flags, the noise keys (seed, iteration, first row) and the statistics.
    """
    arrays, rollout_buffer = fixed
    names = (*update_functions.learning_arrays, "seed", "iteration", "first_row")
    flags = dict(zip(names, inputs, strict=False))
    statistics = dict(zip(update_functions.statistic_names, inputs[len(names) :], strict=True))
    return update_functions.targets(arrays, statistics, rollout_buffer | flags)


def gradient_step(gradient: Callable[..., tuple[Tensor, Tensor]], fixed: Any, *inputs: Tensor) -> Tensor:
    """Do one Adam step; `fixed` are the state and the batch, `inputs` are `rows` and `weights` of `clipped_gradient`.

    Returns the scalars that `clipped_gradient` reports.
    """
    state, batch = fixed
    clipped, measured = gradient(state.flat_params, state.frozen, batch, *inputs)
    state.adam.step(state.flat_params, clipped)
    return measured


class UpdateOutputs(NamedTuple):
    """Results of `update`."""

    metric_names: tuple[str, ...]
    metrics: Tensor
    """One number for each of `metric_names`: means over minibatches, then the metrics of the targets."""
    statistics: Tree
    """The algorithm's statistics after the update."""


@torch.no_grad()
def update(
    update_functions: UpdateFunctions,
    compute_targets: Callable[..., Any],
    take_gradient_step: Callable[..., Any],
    epochs: Tensor,
    samples: Tensor,
    fixed: Any,
    *inputs: Tensor,
) -> UpdateOutputs:
    """Compute the targets and take the gradient steps of all epochs and minibatches; `fixed` is the state alone.

    `compute_targets` and `take_gradient_step` are `targets` and `gradient_step`, which may be recorded. `inputs` are
    those of `targets`; `epochs [E]` and `samples` are those of `UpdateFunctions.minibatch_indices`.
    """
    (state,), hp, names = fixed, update_functions.ppo, update_functions.loss_names
    seed, iteration = inputs[len(update_functions.learning_arrays) :][:2]
    found: Targets = compute_targets((state.arrays, state.rollout_buffer), *inputs)
    minibatches = update_functions.minibatch_indices(seed, iteration, epochs, samples)
    measured: list[Tensor] = []
    for epoch in zip(minibatches, update_functions.weights(found.batch, minibatches), strict=True):
        for minibatch in zip(*epoch, strict=True):
            measured.append(take_gradient_step((state, found.batch), *minibatch).clone())
        if hp.target_kl is not None and measured[-1][names.index("approx_kl")] > hp.target_kl:
            break
    means = torch.stack(measured).mean(0)
    statistics = update_functions.after_update(found.statistics, dict(zip(names, means, strict=False)))
    metrics = torch.cat([means, *(value.reshape(1) for value in found.metrics.values())])
    return UpdateOutputs((*names, "gradient_norm", *found.metrics), metrics, statistics)


def updated_tensors(state: TorchTrainState, *_: Any) -> list[Tensor]:
    """Tensors that `gradient_step` and `update` modify."""
    return [state.flat_params.detach(), state.adam.mean, state.adam.variance, state.adam.count]
