"""Known differences between CleanRL's scripts and this project, neutralised; `leave_out` leaves one in place."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript


def install(script: TorchScript) -> None:
    """Replace the functions of PyTorch and NumPy that the differences are in."""
    own_std = torch.Tensor.std

    def std(self: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        if not arguments and not options and script.variables and script.uses("ddof"):
            return own_std(self, correction=0)
        return own_std(self, *arguments, **options)

    torch.Tensor.std = std  # type: ignore[method-assign,assignment]
    own_clip = torch.nn.utils.clip_grad_norm_

    def clip_grad_norm_(parameters: Any, max_norm: float) -> torch.Tensor:
        parameters = list(parameters)
        gradients = [parameter.grad for parameter in parameters]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
        script.note_gradient(norm.item(), sys._getframe(1).f_locals)
        if not script.uses("clip-eps"):
            return own_clip(parameters, max_norm)
        for gradient in gradients:
            gradient.mul_(max_norm / torch.clamp(norm, min=max_norm))
        return norm

    torch.nn.utils.clip_grad_norm_ = clip_grad_norm_  # type: ignore[assignment]
    if script.supply.masks_resets:
        _leave_out_resets(script)


def _leave_out_resets(script: TorchScript) -> None:
    """Make the indices of transitions that the script takes slices of lack those that only reset an environment."""
    supply, own_arange = script.supply, np.arange

    class Indices(np.ndarray):
        """Indices `[T N]`; a recurrent script has `[T, N]`, and takes columns."""

        def __getitem__(self, key: Any) -> Any:
            taken = np.asarray(self)[key]
            if not isinstance(key, slice | tuple):
                return taken
            return taken.ravel()[script.valid.ravel()[taken.ravel()]]

    def arange(*arguments: Any, **options: Any) -> Any:
        made = own_arange(*arguments, **options)
        caller = sys._getframe(1).f_globals
        if arguments == (script.num_envs * supply.num_steps,) and caller is script.variables and script.drops_resets:
            if supply.sequences:
                _take_whole_sequences(script, caller)
            return made.view(Indices)
        return made

    np.arange = arange


def _take_whole_sequences(script: TorchScript, own: dict[str, Any]) -> None:
    """Make a minibatch of a recurrent script run through whole sequences, and return the transitions of its indices."""
    agent = own["agent"]
    if "get_action_and_value" in vars(agent):
        return
    whole = agent.get_action_and_value

    def get_action_and_value(x: Any, lstm_state: Any, done: Any, action: Any = None) -> Any:
        if action is None:
            return whole(x, lstm_state, done)
        rows = np.asarray(own["flatinds"])[:, np.asarray(own["mbenvinds"])].ravel()
        *of_rows, state = whole(own["b_obs"][rows], lstm_state, own["b_dones"][rows], own["b_actions"].long()[rows])
        kept = torch.from_numpy(script.valid.ravel()[rows])
        return *(each[kept] for each in of_rows), state

    agent.get_action_and_value = get_action_and_value
