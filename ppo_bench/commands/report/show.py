"""How numbers are written."""

from __future__ import annotations

import math
from typing import Any

from ppo_bench.commands.report.statistics import Estimate

TIMES = "\N{MULTIPLICATION SIGN}"


def number(value: float | None) -> str:
    """Four significant digits, with thousands marked; nothing for what is not there."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 6 else f"{value:.3g}"


def short(value: float) -> str:
    """Three significant digits, with k and M."""
    for unit, name in ((1e6, "M"), (1e4, "k")):
        if abs(value) >= unit:
            return f"{value / min(unit, 1e3 if name == 'k' else unit):.3g}{name}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def times(estimate: Estimate | None) -> str:
    """A ratio and its interval."""
    if estimate is None:
        return ""
    point, low, high = (f"{value:#.3g}".rstrip(".") for value in estimate)
    return f"{point}{TIMES} [{low}, {high}]" if math.isfinite(estimate.low) else f"{point}{TIMES}"


def interval(estimate: Estimate | None) -> str:
    """`point [low, high]`."""
    if estimate is None:
        return ""
    if not math.isfinite(estimate.low):
        return number(estimate.point)
    return f"{number(estimate.point)} [{number(estimate.low)}, {number(estimate.high)}]"


def cell(value: Any) -> str:
    """What stands in a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)
