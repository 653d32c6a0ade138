"""The range of float32, in which networks, losses and rewards compute: what fits it, and errors for what does not."""

from __future__ import annotations

import numpy as np

from ppo_bench.common.errors import RunError

FLOAT32_MAX = float(np.finfo(np.float32).max)
SQUARE_MAX = FLOAT32_MAX**0.5
"""The largest number whose square fits float32."""


def is_in_range(x: np.ndarray, limit: float = FLOAT32_MAX) -> bool:
    """Whether all numbers are finite and none exceeds `limit` in absolute value."""
    return float(np.maximum.reduce(np.absolute(x), None)) <= limit


def out_of_range(what: str, values: np.ndarray, first: int = 0, limit: float = FLOAT32_MAX) -> RunError:
    """Error that names the first environment with `values [N, ...]` that do not fit; row 0 is environment `first`."""
    flat = values.reshape(len(values), -1).astype(np.float64)
    row, column = np.argwhere(~(np.absolute(flat) <= limit))[0]
    value = flat[row, column]
    if not np.isfinite(value):
        reason = "is not finite"
    elif abs(value) > FLOAT32_MAX:
        reason = "leaves the range of float32"
    else:
        reason = "is too large to be squared in float32: ppo.norm_reward=true scales rewards"
    return RunError(f"environment {first + row} gave {what} of {value:g}, which {reason}")
