"""What the command line of a report decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """What is compared with what, how closely, and how often is drawn."""

    baseline: str
    margin: float
    """Margin of equivalence, as a part of a task's scale or of the baseline's mean return."""
    margin_return: float | None
    """The same as a return, for every task; None takes `margin`."""
    seed: int
    """Of the bootstrap."""
    resamples: int

    @property
    def margin_in_words(self) -> str:
        """The margin, and what it is a part of."""
        if self.margin_return is not None:
            return f"a return of {self.margin_return:g}"
        return f"{self.margin:.0%} of the task's published scale, or where it has none of {self.baseline}'s mean return"
