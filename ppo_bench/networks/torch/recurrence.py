"""Recurrent cells over sequences in PyTorch: one custom operator for the forward pass, one for the backward pass.

`torch.compile` would unroll a Python loop over the steps, which takes minutes to compile for the usual sequences. It
does not look into custom operators.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ppo_bench.mathematics.recurrent import CELLS

_LIBRARY = torch.library.Library("ppo_bench", "FRAGMENT")


def run_recurrence(
    name: str, projected: Tensor, episode_start: Tensor, state: Tensor, weight: Tensor, bias: Tensor
) -> Tensor:
    """Hidden states `[T, B, H]` of the cell `name`, a key of `CELLS`, from its projected inputs `projected [T, B, G]`.

    `state [S, B, H]` holds the S state arrays before the first step; the state is set to 0 before each step where
    `episode_start [T, B]` is 1. `weight [G, H]` and `bias [G]` project the hidden state.
    """
    if not torch.is_grad_enabled():
        return torch.ops.ppo_bench.recur(name, projected, episode_start, state, weight, bias)[0][1:, 0]
    # Views, because `torch.compile` computes no gradient for the arguments of `torch.func.grad` themselves.
    states, _ = _Recurrence.apply(name, projected, episode_start, state, weight.view_as(weight), bias.view_as(bias))
    hidden: Tensor = states[1:, 0]
    return hidden


def _forward(
    name: str, projected: Tensor, episode_start: Tensor, state: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """States `[T + 1, S, B, H]`, the first being `state`, and the arrays that each step saves, `[T, 4, B, H]`."""
    cell, not_reset = CELLS[name], (1 - episode_start)[..., None]
    steps, (parts, rows, units) = len(projected), state.shape
    states, saved = state.new_empty(steps + 1, parts, rows, units), state.new_empty(steps, 4, rows, units)
    transposed = weight.t()
    with torch.no_grad():
        states[0] = state
        for t in range(steps):
            current = states[t] * not_reset[t]
            after, step = cell.step(torch, projected[t], torch.addmm(bias, current[0], transposed), current.unbind())
            torch.stack(after, out=states[t + 1])
            torch.stack(step, out=saved[t])
        return states, saved


def _backward(
    name: str, gradient: Tensor, states: Tensor, saved: Tensor, episode_start: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the inputs' projections `[T, B, G]`, the hidden states' projections `[T, B, G]` and the first state
    `[S, B, H]`, from the `gradient [T + 1, S, B, H]` of the states."""
    cell, not_reset = CELLS[name], (1 - episode_start)[..., None]
    projected, recurrent = [], []
    with torch.no_grad():
        before = states[:-1] * not_reset[:, None]
        slopes = cell.slopes(torch, before.unbind(1), states[1:].unbind(1), saved.unbind(1))
        after = gradient[-1].unbind()
        for t in reversed(range(len(saved))):
            found = cell.backward(torch, after, tuple(slope[t] for slope in slopes))
            projected.append(found.projected)
            recurrent.append(found.recurrent)
            hidden, *others = found.state
            state_gradient = torch.stack([torch.addmm(hidden, found.recurrent, weight), *others])
            after = torch.addcmul(gradient[t], state_gradient, not_reset[t]).unbind()
        # `after` includes `gradient[0]`, the direct gradient of the first state.
        return torch.stack(projected[::-1]), torch.stack(recurrent[::-1]), torch.stack(after)


def _forward_shapes(
    name: str, projected: Tensor, episode_start: Tensor, state: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    steps = projected.shape[0]
    return state.new_empty(steps + 1, *state.shape), state.new_empty(steps, 4, *state.shape[1:])


def _backward_shapes(
    name: str, gradient: Tensor, states: Tensor, saved: Tensor, episode_start: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    gates = states.new_empty(saved.shape[0], states.shape[2], weight.shape[0])
    return gates, torch.empty_like(gates), torch.empty_like(states[0])


for _schema, _impl, _shapes in (
    (
        "recur(str name, Tensor projected, Tensor start, Tensor state, Tensor weight, Tensor bias) -> (Tensor, Tensor)",
        _forward,
        _forward_shapes,
    ),
    (
        "recur_backward(str name, Tensor gradient, Tensor states, Tensor saved, Tensor start, Tensor weight)"
        " -> (Tensor, Tensor, Tensor)",
        _backward,
        _backward_shapes,
    ),
):
    _LIBRARY.define(_schema)
    _name = _schema.partition("(")[0]
    _LIBRARY.impl(_name, _impl, "CompositeExplicitAutograd")
    torch.library.register_fake(f"ppo_bench::{_name}", _shapes)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        name: str, projected: Tensor, episode_start: Tensor, state: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, Tensor]:
        states, saved = torch.ops.ppo_bench.recur(name, projected, episode_start, state, weight, bias)
        return states, saved

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        name, _, episode_start, _, weight, _ = inputs
        states, saved = output
        ctx.name = name
        ctx.mark_non_differentiable(saved)
        ctx.save_for_backward(states, saved, episode_start, weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[None, Tensor, None, Tensor, Tensor, Tensor]:
        states, saved, episode_start, weight = ctx.saved_tensors
        projected, recurrent, state = torch.ops.ppo_bench.recur_backward(
            ctx.name, gradient, states, saved, episode_start, weight
        )
        hidden = (states[:-1, 0] * (1 - episode_start)[..., None]).flatten(0, 1)
        flat = recurrent.flatten(0, 1)
        return None, projected, None, state, flat.t() @ hidden, flat.sum(0)
