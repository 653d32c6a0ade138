"""A script of CleanRL's while it runs: its variables, what it is given, and the records of its iterations."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.against.names import names_of, to_ours, to_theirs
from ppo_bench.commands.equivalence.against.supply import Supply

LOSSES = {
    "policy_loss": "pg_loss",
    "value_loss": "v_loss",
    "entropy": "entropy_loss",
    "old_approx_kl": "old_approx_kl",
    "approx_kl": "approx_kl",
}
"""The script's variable of each loss."""


class EnoughError(BaseException):
    """Ends the script after the last iteration that is compared. It passes `except Exception`."""


class Script:
    """A running script: what it was given, its variables, and what it has done so far."""

    def __init__(self, path: Path, folder: Path, left_out: set[str]) -> None:
        self.path, self.folder, self.left_out = path, folder, left_out
        self.supply, self.initial = Supply.load(folder)
        self.names = names_of(path.stem)
        self.used: set[str] = set()
        """Names of all patches that have had an effect, and of those that were left out."""
        self.resets: list[np.ndarray] = []
        """For each step so far, `[N]` bool: whether it only reset its environment."""
        self.next_resets = np.zeros(self.supply.num_envs, bool)
        self._minibatches: list[dict[str, float]] = []

    @property
    def variables(self) -> dict[str, Any] | None:
        """The script's variables, if it is among the callers."""
        frame = sys._getframe(1)
        while frame is not None:
            found = frame.f_globals
            if found.get("__file__") == str(self.path) and found.get("__name__") == "__main__":
                return found
            frame = frame.f_back  # type: ignore[assignment]
        return None

    @property
    def own(self) -> dict[str, Any]:
        """The script's variables; it must be among the callers."""
        found = self.variables
        assert found is not None
        return found

    def uses(self, patch: str) -> bool:
        """Whether a patch applies; notes that there was an occasion for it."""
        self.used.add(patch)
        return patch not in self.left_out

    # --- What the environments have done ------------------------------------------------------------------------------

    def note_step(self, done: np.ndarray) -> None:
        """Note a step, after which the environments of `done [N]` are reset."""
        self.resets.append(self.next_resets)
        self.next_resets = np.array(done, bool)

    @property
    def valid(self) -> np.ndarray:
        """Which transitions of the last rollout are no resets, `[T, N]` bool."""
        return ~np.stack(self.resets[-self.supply.num_steps :])

    # --- Weights and records ------------------------------------------------------------------------------------------

    def load_weights(self, agent: torch.nn.Module) -> None:
        """Copy the supplied weights into the script's modules, all of them."""
        theirs, given = dict(agent.named_parameters()), to_theirs(self.names, self.initial)
        assert theirs.keys() == given.keys(), theirs.keys() ^ given.keys()
        with torch.no_grad():
            for name, array in given.items():
                assert theirs[name].shape == array.shape, (name, theirs[name].shape, array.shape)
                theirs[name].copy_(torch.from_numpy(array))

    def note_minibatch(self, gradient_norm: float) -> None:
        """Note the losses of a minibatch whose gradient is about to be clipped."""
        own = self.own
        losses = {ours: float(own[theirs]) for ours, theirs in LOSSES.items()}
        self._minibatches.append(losses | {"gradient_norm": gradient_norm})

    def end_iteration(self) -> None:
        """Record the iteration that the script has finished, and end the script after the last one."""
        own, number = self.own, len(list(self.folder.glob("iteration_*.json"))) + 1
        adam, theirs = own["optimizer"], dict(own["agent"].named_parameters())
        arrays = {"actions": own["actions"].numpy(), "valid": self.valid}
        arrays |= to_ours(self.names, "params", {name: p.detach().numpy() for name, p in theirs.items()})
        for moment, kept in (("mean", "exp_avg"), ("variance", "exp_avg_sq")):
            of_all = {name: adam.state[p][kept].numpy() for name, p in theirs.items()}
            arrays |= to_ours(self.names, f"adam.{moment}", of_all)
        np.savez(self.folder / f"iteration_{number}.npz", **arrays)
        means = {name: float(np.mean([one[name] for one in self._minibatches])) for name in self._minibatches[0]}
        self._minibatches.clear()
        about = {"metrics": means, "used": sorted(self.used)}
        (self.folder / f"iteration_{number}.json").write_text(json.dumps(about))
        if number == self.supply.iterations:
            raise EnoughError
