"""Policies of a few numbers."""

from __future__ import annotations

import numpy as np


def balance(obs: np.ndarray) -> np.ndarray:
    """Actions that hold CartPole's pole for 500 steps, for one observation or several."""
    actions: np.ndarray = (obs @ np.array([0.05, 0.2, 1.0, 1.0]) > 0).astype(np.int64)
    return actions
