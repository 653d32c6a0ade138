"""A running script that learns with PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.cleanrl.script import Script


class TorchScript(Script):
    """A running script whose modules are `agent` and, for RND, `rnd_model`."""

    weight = 1.0
    """Weight of this process's losses in a mean over all processes."""

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        own = self.own
        found = dict(own["agent"].named_parameters())
        if "rnd_model" in own:
            found |= {f"rnd_model.{name}": p for name, p in own["rnd_model"].named_parameters()}
        return found

    @torch.no_grad()
    def load_weights(self) -> None:
        """Copy the supplied weights into the script's modules, all of them."""
        theirs = self._parameters()
        given = self.weights_for({name: tuple(p.shape) for name, p in theirs.items()})
        for name, array in given.items():
            theirs[name].copy_(torch.from_numpy(array))

    def note_gradient(self, norm: float, variables: Mapping[str, Any]) -> None:
        """Note the losses of a minibatch whose gradient, of this norm, is about to be clipped, from `variables`."""
        losses = {ours: self.weight * float(variables[theirs]) for ours, theirs in self.known.losses.items()}
        self.note_minibatch({**losses, "gradient_norm": norm})

    def end(self) -> None:
        """See `Script.end_iteration`."""
        own = self.own
        actions = (own["actions"] if "actions" in own else own["container"]["actions"]).numpy()
        adam, theirs = own["optimizer"], {name: p for name, p in self._parameters().items() if p.requires_grad}
        moments = {
            moment: {name: adam.state[p][kept].numpy() for name, p in theirs.items()}
            for moment, kept in (("mean", "exp_avg"), ("variance", "exp_avg_sq"))
        }
        parts = actions[..., 0] if self.supply.discrete and actions.ndim > 2 else actions  # one choice at a time
        self.end_iteration(parts, {name: np.array(p.detach()) for name, p in theirs.items()}, moments)

    def end_with_last_minibatch(self) -> None:
        """From now on end each iteration with its last step of Adam, for scripts that do not log it."""
        own_step, of_iteration, steps = torch.optim.Adam.step, self.supply.minibatches, 0

        def step(adam: Any, *arguments: Any) -> Any:
            nonlocal steps
            if self.own["args"].target_kl is not None:
                raise SystemExit("ppo.target_kl: the end of an iteration is not seen here; use ppo.target_kl=null")
            loss, steps = own_step(adam, *arguments), steps + 1
            if steps % of_iteration == 0:
                self.end()
            return loss

        torch.optim.Adam.step = step  # type: ignore[method-assign,assignment]
