"""The range of float32, in which networks, losses and rewards compute: what fits it, and errors for what does not."""

from __future__ import annotations

import numpy as np

from ppo_bench.common.errors import RunError

FLOAT32_MAX = float(np.finfo(np.float32).max)


def is_in_range(x: np.ndarray) -> bool:
    """Whether all numbers are finite in float32."""
    return float(np.maximum.reduce(np.absolute(x), None)) <= FLOAT32_MAX


def out_of_range(what: str, values: np.ndarray, first: int = 0) -> RunError:
    """Error that names the first environment with `values [N, ...]` that do not fit; row 0 is environment `first`."""
    flat = values.reshape(len(values), -1).astype(np.float64)
    row, column = np.argwhere(~(np.absolute(flat) <= FLOAT32_MAX))[0]
    value = flat[row, column]
    reason = "leaves the range of float32" if np.isfinite(value) else "is not finite"
    return RunError(f"environment {first + row} gave {what} of {value:g}, which {reason}")
