"""The values of the key `precision`, with the same meaning in every framework."""

from __future__ import annotations

from typing import NamedTuple


class Precision(NamedTuple):
    """The number types of a run; `run.json` records them."""

    parameters: str
    """Dtype of parameters, optimiser state, advantages and losses."""
    layers: str
    """Dtype of the inputs, weights and outputs of each layer."""
    tf32: bool
    """Whether float32 matrix products on a GPU round their factors to a 10-bit mantissa (TF32)."""


PRECISIONS = {
    "float32": Precision("float32", "float32", tf32=False),
    "tf32": Precision("float32", "float32", tf32=True),
    "bfloat16": Precision("float32", "bfloat16", tf32=False),
    "float64": Precision("float64", "float64", tf32=False),
}

NO_TF32 = "precision=tf32 needs a GPU that has it (NVIDIA, compute capability 8.0 or higher): use float32"
