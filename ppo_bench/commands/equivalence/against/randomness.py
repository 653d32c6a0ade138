"""Supplied to a script: weights, noise, permutations and seeds. Without them no two programs could be compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal

from ppo_bench.commands.equivalence.against.running import Script
from ppo_bench.mathematics import noise

SUPPLIED = {
    "weights": "Adam's constructor loads the initial weights into the script's modules",
    "action noise": "Categorical.sample is argmax(logits + Gumbel), Normal.sample is mean + std x normal",
    "permutations": "np.random.shuffle writes the permutation of (iteration, epoch)",
    "environment seeds": "environments are reset with the seeds of the training here",
}


def install(script: Script) -> None:
    """Replace random numbers of PyTorch and NumPy by those that follow from (seed, iteration, step, environment)."""
    supply = script.supply
    one, dtype = torch.ones(1, dtype=torch.int32), torch.get_default_dtype()
    kept: dict[int, torch.Tensor] = {}

    def noise_of_step() -> torch.Tensor:
        own = script.own
        script.used.add("action noise")
        iteration = own["iteration"]
        if iteration not in kept:
            kept.clear()
            sizes = (supply.num_steps + 1, supply.num_envs, supply.lanes)
            steps, envs, lanes = (torch.arange(size, dtype=torch.int32) for size in sizes)
            words = noise.action_words(torch, one * supply.seed, one * iteration, steps, envs, lanes)
            kept[iteration] = (noise.gumbel if supply.discrete else noise.normal)(torch, words, dtype)
        return kept[iteration][own["step"]]

    def sample_category(self: Any, sample_shape: Any = None) -> torch.Tensor:
        return torch.argmax(self.logits + noise_of_step(), -1)

    def sample_normal(self: Any, sample_shape: Any = None) -> torch.Tensor:
        drawn: torch.Tensor = self.loc + self.scale * noise_of_step()
        return drawn

    Categorical.sample, Normal.sample = sample_category, sample_normal  # type: ignore[method-assign]

    def shuffle(x: np.ndarray) -> None:
        own = script.own
        script.used.add("permutations")
        samples, word = np.arange(len(x), dtype=np.int32), np.ones(1, np.int32)
        keys = (word * supply.seed, word * own["iteration"], word * own["epoch"])
        np.copyto(x.view(np.ndarray), noise.permutations(np, *keys, samples)[0])

    np.random.shuffle = shuffle  # type: ignore[assignment]
    own_init = torch.optim.Adam.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        if own := script.variables:
            script.used.add("weights")
            script.load_weights(own["agent"])
        own_init(self, *arguments, **options)

    torch.optim.Adam.__init__ = init  # type: ignore[method-assign]
