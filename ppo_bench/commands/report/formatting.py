"""Formatting of numbers."""

from __future__ import annotations

import math
from typing import Any

from ppo_bench.commands.report.statistics import Estimate

TIMES = "\N{MULTIPLICATION SIGN}"


def number(value: float | None) -> str:
    """A number with four significant digits and thousands separators; empty if it is None or not finite."""
    if value is None or not math.isfinite(value):
        return ""
    if value == 0:
        return "0"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}" if digits <= 6 else f"{value:.3g}"


def short(value: float) -> str:
    """A number with three significant digits and the units k and M."""
    value = float(f"{value:.3g}" if abs(value) < 1000 or abs(value) >= 1e4 else f"{value:.0f}")
    for unit, name, least in ((1e6, "M", 1e6), (1e3, "k", 1e4)):
        if abs(value) >= least:
            return f"{value / unit:.4g}{name}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def times(estimate: Estimate | None) -> str:
    """A ratio with its interval, as `point`, `TIMES` and `[low, high]`."""
    if estimate is None:
        return ""
    point, low, high = (f"{value:#.3g}".rstrip(".") for value in estimate)
    return f"{point}{TIMES} [{low}, {high}]" if math.isfinite(estimate.low) else f"{point}{TIMES}"


def interval(estimate: Estimate | None) -> str:
    """An estimate with its interval, as `point [low, high]`."""
    if estimate is None:
        return ""
    if not math.isfinite(estimate.low):
        return number(estimate.point)
    return f"{number(estimate.point)} [{number(estimate.low)}, {number(estimate.high)}]"


def cell(value: Any) -> str:
    """The text of a table's cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    return number(value) if isinstance(value, float) else str(value)
