"""Published returns of random play and of humans, and what follows from them: scores and margins."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

MARGIN = 0.05
"""Default equivalence margin, as a fraction of a task's range of scores (high minus low)."""


class Scale(NamedTuple):
    """A scale of normalised scores: a row of data/scales.csv with the returns of score 0 (`low`) and 1 (`high`)."""

    env: str
    low: float
    high: float | None
    low_is: str
    high_is: str
    source: str


def stem(env_id: str) -> str:
    """An id without suite and version, in lower case: equal for the same game in gymnasium, EnvPool and dm_control."""
    name = re.sub(r"^(ALE|dm_control)/|NoFrameskip|-v\d+$", "", env_id)
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def scales() -> tuple[Scale, ...]:
    """All scales."""
    import duckdb

    path = Path(__file__).parent / "data" / "scales.csv"
    return tuple(map(Scale._make, duckdb.connect().read_csv(str(path)).fetchall()))


def scale_of(env_id: str) -> Scale | None:
    """The scale of an environment, or None; a scale that names a version applies only to that version."""
    for scale in scales():
        versioned = re.search(r"-v\d+$", scale.env)
        if stem(scale.env) == stem(env_id) and (not versioned or env_id.endswith(versioned.group())):
            return scale
    return None


def equivalence_margin(env_id: str, published: float, margin: float) -> float:
    """The equivalence margin in units of return: `margin` times the environment's range of scores.

    Without a scale it is that fraction of the `published` mean return, measured from random play if that is known.
    """
    scale = scale_of(env_id)
    if scale and scale.high is not None:
        return margin * abs(scale.high - scale.low)
    return margin * abs(published - (scale.low if scale else 0.0))
