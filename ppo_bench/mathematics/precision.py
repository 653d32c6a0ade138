"""What `precision=` means, the same in every framework."""

from __future__ import annotations

from typing import NamedTuple


class Precision(NamedTuple):
    """The arithmetic of a run; recorded in `run.json`."""

    parameters: str
    """Type of parameters, optimiser, advantages and losses."""
    layers: str
    """Type to which each layer's inputs and weights are rounded, and in which it puts out."""
    tf32: bool
    """Whether products of float32 round their factors to 10 bits (TF32, on a GPU) or keep them whole."""


PRECISIONS = {
    "float32": Precision("float32", "float32", tf32=False),
    "tf32": Precision("float32", "float32", tf32=True),
    "bfloat16": Precision("float32", "bfloat16", tf32=False),
    "float64": Precision("float64", "float64", tf32=False),
}

NO_TF32 = "precision=tf32 needs a GPU that has it (NVIDIA, compute capability 8.0 or higher): use float32"
