"""Supplied to a script: weights, noise, permutations and seeds. Without them no two programs could be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal

from ppo_bench.commands.equivalence.cleanrl.script import Script
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.mathematics import noise


class ActionNoise:
    """The noise of the policy's actions, computed for an iteration at a time."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._iteration: int | None = None
        self._noise = torch.zeros(0)

    def now(self) -> torch.Tensor:
        """Noise `[N, A]` of the step that the script has reached."""
        self._script.used.add("action noise")
        return self.at(self._script.iteration, len(self._script.resets) % self._script.supply.num_steps)

    def at(self, iteration: int, step: int) -> torch.Tensor:
        """Noise `[N, A]`."""
        if iteration != self._iteration:
            supply, one = self._script.supply, torch.ones(1, dtype=torch.int32)
            sizes = (supply.num_steps + 1, self._script.num_envs, supply.lanes)
            steps, envs, lanes = (torch.arange(size, dtype=torch.int32) for size in sizes)
            envs = envs + self._script.first_env
            words = noise.action_words(torch, one * supply.seed, one * iteration, steps, envs, lanes)
            kind = noise.gumbel if supply.discrete else noise.normal
            self._iteration, self._noise = iteration, kind(torch, words, torch.get_default_dtype())
        return self._noise[step]


def permutation(script: Script, size: int) -> np.ndarray:
    """The permutation of this process's transitions `[size]` in the script's iteration and epoch."""
    script.used.add("permutations")
    steps, envs = (np.arange(count, dtype=np.int32) for count in (script.supply.num_steps, script.num_envs))
    samples = (steps[:, None] * script.supply.num_envs + script.first_env + envs).ravel()
    if size != len(samples):  # whole environments
        samples = np.arange(size, dtype=np.int32)
    one = np.ones(1, np.int32)
    keys = (one * script.supply.seed, one * script.iteration, one * script.own["epoch"])
    found: np.ndarray = noise.permutations(np, *keys, samples)[0]
    return found


class Order:
    """A permutation of transitions `[size]`, whose slices lack those that only reset an environment."""

    def __init__(self, script: Script, size: int) -> None:
        self._script, self._order = script, permutation(script, size).astype(np.int64)

    def __getitem__(self, key: slice) -> torch.Tensor:
        taken = self._order[key]
        if self._script.drops_resets:
            taken = taken[self._script.valid.ravel()[taken]]
        return torch.from_numpy(taken)

    def split(self, size: int) -> list[torch.Tensor]:
        """Slices of `size` transitions, one behind the other."""
        return [self[k : k + size] for k in range(0, len(self._order), size)]


def install(script: TorchScript) -> None:
    """Replace random numbers of PyTorch and NumPy by those that follow from (seed, iteration, step, environment)."""
    action_noise = ActionNoise(script)

    def sample_category(self: Any, sample_shape: Any = None) -> torch.Tensor:
        return torch.argmax(self.logits + action_noise.now(), -1)

    def sample_normal(self: Any, sample_shape: Any = None) -> torch.Tensor:
        drawn: torch.Tensor = self.loc + self.scale * action_noise.now()
        return drawn

    Categorical.sample, Normal.sample = sample_category, sample_normal  # type: ignore[method-assign]

    def shuffle(x: Any) -> None:
        np.copyto(x.view(np.ndarray), permutation(script, len(x)))

    np.random.shuffle = shuffle
    own_init = torch.optim.Adam.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        if script.variables:
            script.used.add("weights")
            script.load_weights()
        own_init(self, *arguments, **options)

    torch.optim.Adam.__init__ = init  # type: ignore[method-assign]
