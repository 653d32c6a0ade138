"""A running script that learns with PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.cleanrl.script import Script, patch
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config


class TorchScript(Script):
    """A running script whose modules are `agent` and, for RND, `rnd_model`."""

    weight = 1.0
    """Weight of this process's losses in a mean over all processes."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.when_built: list[Callable[[], None]] = [self._load_weights]
        """Functions that are called when the script makes its optimizer, after its modules."""

    def _parameters(self) -> dict[str, torch.nn.Parameter]:
        found = dict(self.variables["agent"].named_parameters())
        if "rnd_model" in self.variables:
            found |= {f"rnd_model.{name}": p for name, p in self.variables["rnd_model"].named_parameters()}
        return found

    @torch.no_grad()
    def _load_weights(self) -> None:
        """Copy the supplied weights into the script's modules, all of them."""
        theirs = self._parameters()
        given = self.weights_for({name: tuple(p.shape) for name, p in theirs.items()})
        for name, array in given.items():
            theirs[name].copy_(torch.from_numpy(array))

    def note_gradient(self, norm: float, variables: Mapping[str, Any]) -> None:
        """Note the losses of a minibatch, which are among `variables`, and the norm of its gradient."""
        losses = {ours: self.weight * float(variables[theirs]) for ours, theirs in self.spec.losses.items()}
        self.minibatches.append({**losses, "gradient_norm": norm})

    def end_iteration(self) -> None:
        """See `Script.end_iteration`."""
        own = self.variables
        actions = (own["actions"] if "actions" in own else own["container"]["actions"]).numpy()
        if self.training_spec.network.discrete and actions.ndim > 2:
            actions = actions[..., 0]  # one choice at a time
        theirs = {name: p for name, p in self._parameters().items() if p.requires_grad}
        moments = {
            moment: {name: own["optimizer"].state[p][key].numpy() for name, p in theirs.items()}
            for moment, key in (("mean", "exp_avg"), ("variance", "exp_avg_sq"))
        }
        self.record(actions, {name: np.array(p.detach()) for name, p in theirs.items()}, moments)

    def end_with_last_minibatch(self) -> None:
        """End each iteration with its last step of Adam, for processes that do not log its end."""
        of_iteration, steps = self.ppo.update_epochs * self.ppo.num_minibatches, 0

        @patch(torch.optim.Adam, "step")
        def step(original: Any, adam: Any, *arguments: Any) -> Any:
            nonlocal steps
            if self.variables["args"].target_kl is not None:
                raise ConfigError("ppo.target_kl: the end of an iteration is not seen here; use ppo.target_kl=null")
            loss, steps = original(adam, *arguments), steps + 1
            if steps % of_iteration == 0:
                self.end_iteration()
            return loss
