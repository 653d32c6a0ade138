"""Patches of ppo_trxl.py alone."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.cleanrl.script import patch
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.envs import proof_of_memory
from ppo_bench.mathematics import noise


def install(script: TorchScript) -> None:
    """Replace the attention of an episode's first step and of the last value, and the task's random states."""
    script.when_built.append(lambda: _correct_attention(script))
    _supply_proof_of_memory()


def _correct_attention(script: TorchScript) -> None:
    own = script.variables

    @patch(own["MultiHeadAttention"], "forward")
    def forward(original: Any, self: Any, values: Any, keys: Any, query: Any, mask: torch.Tensor) -> Any:
        out, weights = original(self, values, keys, query, mask)
        empty = (mask.sum(-1) == 0)[:, None, None]
        if empty.any():
            out = torch.where(empty, self.fc_out.bias, out)
        return out, weights

    @patch(own["agent"], "get_value")
    def get_value(original: Any, x: Any, window: Any, mask: Any, indices: Any) -> Any:
        steps = own["env_current_episode_step"]
        if (steps >= own["args"].trxl_memory_length).any():
            indices = own["memory_indices"][steps]
            window = own["batched_index_select"](own["next_memory"], 1, indices)
        return original(x, window, mask, indices)


def _supply_proof_of_memory() -> None:
    """Draw the initial states of the script's own task, which uses NumPy's global generator, as those here."""

    @patch(importlib.import_module("pom_env").PoMEnv, "reset")
    def reset(original: Any, self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        _, info = original(self, seed=seed, options=options)
        self.episode = 0 if seed is not None else self.episode + 1
        self.own_seed = self.own_seed if seed is None else seed
        seeds, episodes = np.array([[self.own_seed], [self.episode]], np.int32)
        words = noise.reset_words(np, seeds, episodes, 2)
        line = proof_of_memory.ProofOfMemory().reset(words)
        self._position = np.round(float(line.position[0]) / proof_of_memory.ENDS, 2)
        assert np.isclose(self._position, self.possible_positions).any()
        self._goals = np.array([-1.0, 1.0]) * line.pays[0]
        return np.asarray([self._goals[0], self._position, self._goals[1]], dtype=np.float32), info
