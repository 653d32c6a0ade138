"""Files and colours of the figures of a benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#009E73", "#56B4E9", "#0072B2", "#D55E00", "#999999")  # the colour-blind safe palette of Okabe and Ito


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG and PNG beside the JSON file at `path`."""
    for suffix in (".svg", ".png"):
        figure.savefig(path.with_suffix(suffix), dpi=150)
