"""The range of float32, in which networks, losses and rewards compute: what fits it, and errors for what does not."""

from __future__ import annotations

import math

import numpy as np

from ppo_bench.common.errors import RunError

FLOAT32_MAX = float(np.finfo(np.float32).max)
SQUARE_MAX = FLOAT32_MAX**0.5
"""The largest number whose square fits float32."""


def is_in_range(x: np.ndarray, limit: float = FLOAT32_MAX) -> bool:
    """Whether all numbers are finite and none exceeds `limit` in absolute value."""
    return float(np.maximum.reduce(np.absolute(x), None)) <= limit


def range_error(value: float) -> str:
    """Why `value`, which does not fit, is refused."""
    if not np.isfinite(value):
        return "is not finite"
    if abs(value) > FLOAT32_MAX:
        return "leaves the range of float32"
    return "is too large to be squared in float32: ppo.norm_reward=true scales rewards"


def out_of_range(what: str, values: np.ndarray, first: int = 0, limit: float = FLOAT32_MAX) -> RunError:
    """Error that names the first environment with `values [N, ...]` that do not fit; row 0 is environment `first`."""
    flat = values.reshape(len(values), -1).astype(np.float64)
    row, column = np.argwhere(~(np.absolute(flat) <= limit))[0]
    value = flat[row, column]
    return RunError(f"environment {first + row} gave {what} of {value:g}, which {range_error(value)}")


def to_float32(rewards: np.ndarray) -> np.ndarray:
    """Rewards `[N]` as float32. Raises `RunError` if one leaves its range."""
    numbers = rewards.tolist()  # for few environments faster than NumPy
    if FLOAT32_MAX < max(numbers) < math.inf or -math.inf < min(numbers) < -FLOAT32_MAX:
        raise out_of_range("a reward", rewards)
    return rewards.astype(np.float32)
