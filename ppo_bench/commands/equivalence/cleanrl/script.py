"""A script of CleanRL's in its process: its variables, its part of the environments, the records of its iterations."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.equivalence.cleanrl.config import initial_state, schema, script_path
from ppo_bench.commands.equivalence.cleanrl.parameter_names import Pair, pairs, to_ours
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.shards import Shard


def patch(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace the function `owner.name` by the decorated one, whose first argument is the original."""

    def replace(function: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        def patched(*arguments: Any, **options: Any) -> Any:
            return function(original, *arguments, **options)

        setattr(owner, name, patched)

    return replace


def calling_frame() -> types.FrameType:
    """For a function that `patch` decorates: the frame from which it was called."""
    frame = inspect.currentframe()
    for _ in range(3):  # this function, the decorated one, `patched`
        assert frame
        frame = frame.f_back
    assert frame
    return frame


def install_module(name: str, **attributes: Any) -> None:
    """Let the script import a module `name` with these attributes."""
    module = types.ModuleType(name)
    vars(module).update(attributes)
    sys.modules[name] = module


class LastIterationError(BaseException):
    """Ends the script after the last iteration that is compared. It passes `except Exception`."""


class Record(NamedTuple):
    """An iteration of a process of the script."""

    actions: np.ndarray
    """Actions `[T, N]` or `[T, N, A]`."""
    value_mask: np.ndarray
    """Which steps are no resets, `[T, N]` bool."""
    arrays: Arrays
    """Parameters and Adam's moments, by the names of a checkpoint."""
    metrics: dict[str, float]
    """Means over the minibatches."""


class Script(ABC):
    """A running script. Of several processes, each has a part of the environments."""

    def __init__(self, config: Config) -> None:
        self.config, self.root, self.ppo = config, schema(config), config.ppo
        self.path = script_path(config)
        self.spec = SCRIPTS[self.path.stem]
        self.training_spec, self._initial = initial_state(config)
        self._pairs: list[Pair] = []
        self.variables: dict[str, Any] = {}
        """The script's global variables."""
        self.part = Shard(int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))
        self.num_envs, self.first_env = self.part.size(self.ppo.num_envs), self.part.first(self.ppo.num_envs)
        self.env_seeds = self.training_spec.env_seeds(self.root.seed, 0)[self.first_env :][: self.num_envs]
        self.records: list[Record] = []
        self.iteration = 1
        """The script's iteration, from 1."""
        self.resets: list[np.ndarray] = []
        """For each step so far, `[N]` bool: whether it only reset its environment."""
        self.next_resets = np.zeros(self.num_envs, bool)
        self.minibatches: list[dict[str, float]] = []
        """Losses and gradient norm of each minibatch of the iteration."""

    def run(self, arguments: list[str]) -> None:
        """Execute the script with these arguments; raises `LastIterationError` or what the script raises."""
        sys.argv = [str(self.path), *arguments]
        module_spec = importlib.util.spec_from_file_location("__main__", self.path)
        assert module_spec
        assert module_spec.loader
        module = importlib.util.module_from_spec(module_spec)
        self.variables = vars(module)
        sys.modules["__main__"] = module
        module_spec.loader.exec_module(module)

    # --- What the environments have done ------------------------------------------------------------------------------

    def note_step(self, done: np.ndarray) -> None:
        """Note a step, after which the environments of `done [N]` are reset."""
        self.resets.append(self.next_resets)
        self.next_resets = np.array(done, bool)

    @property
    def drops_resets(self) -> bool:
        """Whether minibatches of the last rollout have to leave out steps that only reset an environment."""
        return self.ppo.mask_resets and not self.value_mask.all()

    @property
    def value_mask(self) -> np.ndarray:
        """Which transitions of the last rollout are no resets, `[T, N]` bool."""
        return ~np.stack(self.resets[-self.ppo.num_steps :])

    # --- Weights and records ------------------------------------------------------------------------------------------

    def weights_for(self, shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
        """The initial weights by the script's names, for all its parameters, which have these `shapes`.

        Raises `ConfigError` if the script has others than the training here.
        """
        self._pairs = pairs(self.spec.modules, self._initial, shapes)
        return {pair.theirs: np.ascontiguousarray(pair.to_theirs(self._initial[pair.ours])) for pair in self._pairs}

    @abstractmethod
    def end_iteration(self) -> None:
        """Record the iteration that the script has finished: `record` with its arrays."""

    def record(self, actions: np.ndarray, parameters: Mapping[str, Any], moments: Mapping[str, Any]) -> None:
        """Add the record of an iteration, and end the script after the last one.

        `parameters` are those that learn, and `moments` Adam's `mean` and `variance` of them, by the script's names.
        """
        arrays = to_ours(self._pairs, "params", parameters)
        for moment, of_all in moments.items():
            arrays |= to_ours(self._pairs, f"adam.{moment}", of_all)
        metrics = {
            name: float(np.mean([one[name] for one in self.minibatches]))
            for name in (self.minibatches[0] if self.minibatches else ())
        }
        value_mask = self.value_mask if self.resets else np.ones(actions.shape[:2], bool)
        self.records.append(Record(np.array(actions), value_mask, arrays, metrics))
        if self.iteration == self.root.iterations:
            raise LastIterationError
        self.iteration, self.minibatches = self.iteration + 1, []
