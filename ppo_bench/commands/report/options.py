"""Options of a report, from its command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class Resampling(TypedDict):
    """Parameters of the bootstrap."""

    seed: int
    resamples: int


@dataclass(frozen=True)
class Options:
    """What is compared, with which baseline, within which margin; and the parameters of the bootstrap."""

    baseline: str
    """Framework, or value of `by`, with which others are compared."""
    margin: float
    """Margin of equivalence, as a fraction of a task's scale or of the baseline's mean return."""
    margin_return: float | None
    """Margin of equivalence as a return, for all tasks; None to use `margin`."""
    seed: int
    resamples: int
    by: str = "framework"
    """The key whose values are compared."""

    @property
    def resampling(self) -> Resampling:
        """Keyword arguments of whatever draws bootstrap samples."""
        return {"seed": self.seed, "resamples": self.resamples}

    @property
    def margin_in_words(self) -> str:
        """A phrase that describes the margin."""
        if self.margin_return is not None:
            return f"a return of {self.margin_return:g}"
        return f"{self.margin:.0%} of the task's published scale, or where it has none of {self.baseline}'s mean return"
