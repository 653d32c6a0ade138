"""Published results: returns and speeds of other systems, and returns of random play and of humans."""

from __future__ import annotations

import csv
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).parent / "data"
MUJOCO = frozenset(
    (
        "ant",
        "halfcheetah",
        "hopper",
        "humanoid",
        "humanoidstandup",
        "inverteddoublependulum",
        "invertedpendulum",
        "pusher",
        "reacher",
        "swimmer",
        "walker2d",
    )
)


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


class Scale(NamedTuple):
    """A scale of normalised scores: a row of data/scales.csv with the returns of score 0 (`low`) and 1 (`high`)."""

    env: str
    low: float
    high: float | None
    low_is: str
    high_is: str
    source: str


def is_another_version(env_id: str, other: str) -> bool:
    """Whether two ids, such as `Pusher-v5` and `Pusher-v4`, differ in nothing but the version."""
    return env_id != other and env_id.rpartition("-v")[0] == other.rpartition("-v")[0]


def stem(env_id: str) -> str:
    """An id without suite and version, in lower case: equal for the same game in gymnasium, EnvPool and dm_control."""
    name = re.sub(r"^(ALE|dm_control)/|NoFrameskip|-v\d+$", "", env_id)
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def references() -> tuple[Reference, ...]:
    """All published results."""

    def number(text: str) -> float | None:
        return float(text) if text else None

    def whole(text: str) -> int | None:
        return int(text) if text else None

    return tuple(
        Reference(
            row["system"], row["variant"], row["env"], whole(row["steps"]), number(row["mean"]), number(row["std"]),
            whole(row["seeds"]), number(row["sps"]), row["hardware"], row["source"],
        )
        for row in _rows("references.csv")
    )  # fmt: skip


@cache
def scales() -> tuple[Scale, ...]:
    """All scales."""
    return tuple(
        Scale(
            row["env"], float(row["low"]), float(row["high"]) if row["high"] else None,
            row["low_is"], row["high_is"], row["source"],
        )
        for row in _rows("scales.csv")
    )  # fmt: skip


def references_of(env_id: str, kind: str | None) -> list[Reference]:
    """Published results for an environment in any version, or for its kind (`Atari`, `MuJoCo`)."""
    name = stem(env_id)
    kinds = {kind, "MuJoCo" if name in MUJOCO else None} - {None}
    return [reference for reference in references() if reference.env in kinds or stem(reference.env) == name]


def scale_of(env_id: str) -> Scale | None:
    """The scale of an environment, or None; a scale that names a version applies only to that version."""
    for scale in scales():
        versioned = re.search(r"-v\d+$", scale.env)
        if stem(scale.env) == stem(env_id) and (not versioned or env_id.endswith(versioned.group())):
            return scale
    return None


def _rows(name: str) -> list[dict[str, str]]:
    with open(DATA / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
