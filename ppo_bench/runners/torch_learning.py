"""The functions of acting and learning in PyTorch: each can be run as it is, compiled, or recorded as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ppo_bench import ppo
from ppo_bench.networks import torch as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.runners import objective
from ppo_bench.runners.base import Hyperparameters

REPORTED = tuple(name for name in ppo.Losses._fields if name != "total")


class Storage(NamedTuple):
    """What the policy saw and did in one iteration, on the device; written step by step, allocated once."""

    obs: Tensor
    """`[T + 1, N, ...]`, the last row for the observations after the rollout."""
    actions: Tensor
    """`[T + 1, N]` or `[T + 1, N, K]`; the last row is not used."""
    heads: Tensor
    """`[T + 1, N, A]`, the first part of the policy's head: logits or mean."""
    values: Tensor
    """`[T + 1, N]`."""


def allocate(network: NetworkSpec, hp: Hyperparameters, dtype: torch.dtype, device: torch.device) -> Storage:
    """Storage of zeros."""
    rows, lanes = (hp.num_steps + 1, hp.num_envs), network.num_actions

    def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return Storage(
        obs=zeros(*rows, *network.input_shape, dtype=torch.uint8 if network.uint8 else dtype),
        actions=zeros(*rows, *network.actions.shape, dtype=torch.int64 if network.discrete else dtype),
        heads=zeros(*rows, lanes),
        values=zeros(*rows),
    )


class Batch(NamedTuple):
    """The transitions of one iteration, or of a minibatch of it; `[B, ...]` each."""

    obs: Tensor
    actions: Tensor
    targets: ppo.Minibatch


def policy(
    network: NetworkSpec, layers: torch.dtype, params: networks.Params, obs: Tensor, noise_of_step: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions `[N]` or `[N, A]`, the first part of the head `[N, A]` and values `[N]` for `obs [N, ...]`."""
    head, values, _ = networks.apply(network, params, obs, (), None, layers)
    return network.distribution.sample(torch, head, noise_of_step), head[0], values


@torch.no_grad()
def advantages_and_targets(
    network: NetworkSpec,
    hp: Hyperparameters,
    storage: Storage,
    params: networks.Params,
    rewards: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    real: Tensor,
) -> tuple[Batch, Tensor]:
    """The flattened batch with its advantages and returns, and the explained variance of the old values.

    Rewards and flags are `[T, N]`, of the parameters' type.
    """
    flags = (rewards, terminated, truncated, real)
    targets, explained_variance = objective.targets(torch, network, hp, params, storage, *flags)
    obs, actions = (x[:-1].flatten(0, 1) for x in (storage.obs, storage.actions))
    return Batch(obs, actions, targets), explained_variance


def clipped_gradient(
    network: NetworkSpec, layers: torch.dtype, hp: Hyperparameters, params: Tensor, batch: Batch, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient `[P]` on the transitions `rows`; the reported losses and, last, its norm before clipping."""
    obs, actions = batch.obs.index_select(0, rows), batch.actions.index_select(0, rows)
    targets = ppo.Minibatch(*(x.index_select(0, rows) for x in batch.targets))

    def total(params: Tensor) -> tuple[Tensor, Tensor]:
        head, values, _ = networks.apply(network, networks.named_views(params, network), obs, (), None, layers)
        losses = objective.losses(torch, network, hp, head, values, actions, targets)
        return losses.total, torch.stack([getattr(losses, name) for name in REPORTED])

    gradient, reported = _gradient(total, params)
    norm = ppo.global_norm(torch, [gradient])
    return gradient * ppo.clip_scale(torch, norm, hp.max_grad_norm), torch.cat([reported, norm[None]])


def _gradient(total: Callable[[Tensor], tuple[Tensor, Tensor]], params: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the first of what `total` returns, and the second."""
    if torch.compiler.is_compiling():
        # A graph can be made of the functional form alone; operation by operation the tape is a third faster.
        gradient, reported = torch.func.grad(total, has_aux=True)(params)
        return gradient, reported
    with torch.enable_grad():
        loss, reported = total(params)
    return torch.autograd.grad(loss, params)[0], reported.detach()
