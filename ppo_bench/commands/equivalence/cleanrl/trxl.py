"""Patches of ppo_trxl.py alone."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.cleanrl.randomness import Order
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.envs import proof_of_memory
from ppo_bench.mathematics import noise


def install(script: TorchScript) -> None:
    """Replace permutations, the attention of an episode's first step, and the task's random states."""

    def randperm(size: int) -> Any:
        return Order(script, size)

    torch.randperm = randperm  # type: ignore[assignment]
    own_load = script.load_weights

    def load_weights() -> None:
        attention = script.own["MultiHeadAttention"]
        own_forward = attention.forward

        def forward(self: Any, values: Any, keys: Any, query: Any, mask: torch.Tensor) -> Any:
            out, weights = own_forward(self, values, keys, query, mask)
            empty = (mask.sum(-1) == 0)[:, None, None]
            if empty.any() and script.uses("trxl-first"):
                out = torch.where(empty, self.fc_out.bias, out)
            return out, weights

        attention.forward = forward
        _attend_to_latest_steps(script)
        own_load()

    script.load_weights = load_weights  # type: ignore[method-assign]
    sys.path.insert(0, str(script.path.parent))
    _supply_proof_of_memory(script)


def _attend_to_latest_steps(script: TorchScript) -> None:
    """Choose the memory of the value after a rollout as that of every other value."""
    agent = script.own["agent"]
    own_value = agent.get_value

    def get_value(x: Any, window: Any, mask: Any, indices: Any) -> Any:
        own = script.own
        steps = own["env_current_episode_step"]
        if (steps >= own["args"].trxl_memory_length).any() and script.uses("trxl-bootstrap"):
            indices = own["memory_indices"][steps]
            window = own["batched_index_select"](own["next_memory"], 1, indices)
        return own_value(x, window, mask, indices)

    agent.get_value = get_value


def _supply_proof_of_memory(script: TorchScript) -> None:
    """Draw the initial states of the script's own task, which uses NumPy's global generator, as those here."""
    pom_env = importlib.import_module("pom_env")
    own_reset = pom_env.PoMEnv.reset

    def reset(self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        _, info = own_reset(self, seed=seed, options=options)
        self.episode = 0 if seed is not None else self.episode + 1
        self.own_seed = self.own_seed if seed is None else seed
        seeds, episodes = np.array([[self.own_seed], [self.episode]], np.int32)
        words = noise.reset_words(np, seeds, episodes, 2)
        line = proof_of_memory.ProofOfMemory().reset(words)
        self._position = np.round(float(line.position[0]) / proof_of_memory.ENDS, 2)
        assert np.isclose(self._position, self.possible_positions).any()
        self._goals = np.array([-1.0, 1.0]) * line.pays[0]
        return np.asarray([self._goals[0], self._position, self._goals[1]], dtype=np.float32), info

    pom_env.PoMEnv.reset = reset
