"""Layers in tests: a small transformer, random arrays, and the two libraries that compute with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from ppo_bench.networks.flax.ops import JaxOps
from ppo_bench.networks.torch.ops import TorchOps

DIM = 8
SMALL = ["network=trxl", "network.dim=8", "network.heads=2", "network.layers=2", "network.memory=5"]
WAYS: dict[str, tuple[Any, Callable[[np.ndarray], Any]]] = {
    "torch": (TorchOps(torch.float64, torch.float64), torch.from_numpy),
    "jax": (JaxOps(jnp.dtype("float64"), jnp.dtype("float64")), jnp.asarray),
}
"""The operations of each library in float64, and what makes an array of NumPy's its own."""


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    """An array of normal numbers."""
    return np.random.default_rng(seed).normal(size=shape)
