"""Published results: returns and speeds of other systems, and returns of random play and of humans."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeVar, get_args, get_type_hints

from ppo_bench.commands.report.statistics import SampleMoments

Row = TypeVar("Row")

DATA = Path(__file__).parent / "data"
MUJOCO = (
    *("ant", "halfcheetah", "hopper", "humanoid", "humanoidstandup", "inverteddoublependulum", "invertedpendulum"),
    *("pusher", "reacher", "swimmer", "walker2d"),
)
MARGIN = 0.05
"""Default margin of equivalence, as a fraction of a task's scale."""


class Reference(NamedTuple):
    """A published result: a row of data/references.csv; None where nothing was published."""

    system: str
    variant: str
    env: str
    """Id of the environment, or `Atari` or `MuJoCo` if the result is not for a single environment."""
    steps: int | None
    mean: float | None
    std: float | None
    seeds: int | None
    sps: float | None
    hardware: str
    source: str

    @property
    def moments(self) -> SampleMoments | None:
        """Moments of the published seeds, whose deviation has their number as denominator; None of fewer than two."""
        if self.mean is None or self.seeds is None or self.seeds < 2:
            return None
        return SampleMoments(self.mean, (self.std or 0.0) * math.sqrt(self.seeds / (self.seeds - 1)), self.seeds)


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
def references() -> tuple[Reference, ...]:
    """All published results."""
    return _rows("references.csv", Reference)


@cache
def scales() -> tuple[Scale, ...]:
    """All scales."""
    return _rows("scales.csv", Scale)


def references_of(env_id: str, is_atari: bool) -> list[Reference]:
    """Published results for an environment in any version, or for all of Atari or MuJoCo."""
    name = stem(env_id)
    suite = "Atari" if is_atari else "MuJoCo" if name in MUJOCO else None
    return [reference for reference in references() if reference.env == suite or stem(reference.env) == name]


def scale_of(env_id: str) -> Scale | None:
    """The scale of an environment, or None; a scale that names a version applies only to that version."""
    for scale in scales():
        versioned = re.search(r"-v\d+$", scale.env)
        if stem(scale.env) == stem(env_id) and (not versioned or env_id.endswith(versioned.group())):
            return scale
    return None


def equivalence_margin(env_id: str, published: float, margin: float) -> float:
    """The equivalence margin as a return: the fraction `margin` of the environment's published scale.

    Without a scale it is that fraction of the `published` mean return, measured from random play if that is known.
    """
    scale = scale_of(env_id)
    if scale and scale.high is not None:
        return margin * abs(scale.high - scale.low)
    return margin * abs(published - (scale.low if scale else 0.0))


def _rows(name: str, row_type: Callable[..., Row]) -> tuple[Row, ...]:
    """The rows of a CSV file, converted to what the fields of `row_type` are; an empty number is None."""
    types = {field: (get_args(hint) or (hint,))[0] for field, hint in get_type_hints(row_type).items()}
    with open(DATA / name, newline="", encoding="utf-8") as file:
        return tuple(
            row_type(**{field: of(row[field]) if row[field] or of is str else None for field, of in types.items()})
            for row in csv.DictReader(file)
        )
