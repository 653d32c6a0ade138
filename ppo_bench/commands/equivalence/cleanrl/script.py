"""A script of CleanRL's while it runs: its variables, what it is given, and the records of its iterations."""

from __future__ import annotations

import json
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.commands.equivalence.cleanrl.parameter_names import to_ours, to_theirs
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.commands.equivalence.cleanrl.supply import Supply
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.parts import Part


class EnoughError(BaseException):
    """Ends the script after the last iteration that is compared. It passes `except Exception`."""


class Script(ABC):
    """A running script: what it was given, its variables, and what it has done so far.

    Of several processes each has a part of the environments, and a folder of its own for its records.
    """

    def __init__(self, path: Path, folder: Path, left_out: set[str]) -> None:
        self.path, self.folder, self.left_out = path, folder, left_out
        self.supply, self._initial = Supply.load(folder)
        self.known = SCRIPTS[path.stem]
        self.names = self.known.names(self._initial)
        self.used: set[str] = set()
        """Names of all patches that have had an effect, and of those that were left out."""
        rank = int(os.environ.get("LOCAL_RANK", "0"))
        self.part = Part(rank, int(os.environ.get("WORLD_SIZE", "1")))
        self.num_envs, self.first_env = self.part.size(self.supply.num_envs), self.part.first(self.supply.num_envs)
        self.env_seeds = self.supply.env_seeds[self.first_env :][: self.num_envs]
        self._records = folder / str(rank)
        self._records.mkdir()
        self.resets: list[np.ndarray] = []
        """For each step so far, `[N]` bool: whether it only reset its environment."""
        self.next_resets = np.zeros(self.num_envs, bool)
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

    @property
    def iteration(self) -> int:
        """The script's iteration, from 1."""
        own = self.own
        return int(own["iteration"] if "iteration" in own else own["update"])

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
    def drops_resets(self) -> bool:
        """Whether minibatches of the last rollout have to leave out steps that only reset an environment."""
        return self.supply.masks_resets and not self.valid.all() and self.uses("resets")

    @property
    def valid(self) -> np.ndarray:
        """Which transitions of the last rollout are no resets, `[T, N]` bool."""
        return ~np.stack(self.resets[-self.supply.num_steps :])

    # --- Weights and records ------------------------------------------------------------------------------------------

    def weights_for(self, shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
        """The initial weights by the script's names, for all its parameters, which have these `shapes`."""
        given = to_theirs(self.names, self._initial)
        shapes_here = {name: array.shape for name, array in given.items()}
        for name in sorted(shapes.keys() | shapes_here.keys()):
            if shapes.get(name) != shapes_here.get(name):
                raise SystemExit(f"{name} has the shape {shapes.get(name)}, and here {shapes_here.get(name)}")
        return given

    @abstractmethod
    def end(self) -> None:
        """Note that the script has finished an iteration: `end_iteration` with its arrays."""

    def note_minibatch(self, losses: dict[str, float]) -> None:
        """Note the losses of a minibatch, by their names here, and the norm of its gradient."""
        self._minibatches.append(losses)

    def end_iteration(self, actions: np.ndarray, parameters: Mapping[str, Any], moments: Mapping[str, Any]) -> None:
        """Record the iteration that the script has finished, and end the script after the last one.

        `parameters` are those that learn, and `moments` Adam's `mean` and `variance` of them, by the script's names.
        """
        number = len(list(self._records.glob("*.json"))) + 1
        assert number == self.iteration, (number, self.iteration)
        arrays = {"actions": actions, **({"valid": self.valid} if self.resets else {})}
        arrays |= to_ours(self.names, "params", parameters)
        for moment, of_all in moments.items():
            arrays |= to_ours(self.names, f"adam.{moment}", of_all)
        np.savez(self._records / f"{number}.npz", **arrays)  # type: ignore[arg-type]  # NumPy's stub takes no dictionary
        noted = self._minibatches
        means = {name: float(np.mean([one[name] for one in noted])) for name in noted[0]} if noted else {}
        self._minibatches = []
        about = {"metrics": means, "used": sorted(self.used)}
        (self._records / f"{number}.json").write_text(json.dumps(about))
        if number == self.supply.iterations:
            raise EnoughError
