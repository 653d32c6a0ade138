"""Published figures: returns and speeds of other systems, and what random play and people reach."""

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
    """A row of data/references.csv; null where nothing was published."""

    system: str
    variant: str
    env: str
    """An id, or `Atari` or `MuJoCo` where the publication names no single environment."""
    steps: int | None
    mean: float | None
    std: float | None
    seeds: int | None
    sps: float | None
    hardware: str
    source: str


class Scale(NamedTuple):
    """A row of data/scales.csv: two returns between which scores are normalised."""

    env: str
    low: float
    high: float | None
    low_is: str
    high_is: str
    source: str


def stem(env_id: str) -> str:
    """An id without its suite and version, which name the same game in gymnasium, EnvPool and dm_control."""
    name = re.sub(r"^(ALE|dm_control)/|NoFrameskip|-v\d+$", "", env_id)
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def references() -> tuple[Reference, ...]:
    """All of them."""

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
    """All of them."""
    return tuple(
        Scale(
            row["env"], float(row["low"]), float(row["high"]) if row["high"] else None,
            row["low_is"], row["high_is"], row["source"],
        )
        for row in _rows("scales.csv")
    )  # fmt: skip


def references_of(env_id: str, kind: str | None) -> list[Reference]:
    """What was published of an environment, whatever its version, or of its kind."""
    name = stem(env_id)
    kinds = {kind, "MuJoCo" if name in MUJOCO else None} - {None}
    return [reference for reference in references() if reference.env in kinds or stem(reference.env) == name]


def scale_of(env_id: str) -> Scale | None:
    """The scale of an environment; one that names a version is for that version alone."""
    for scale in scales():
        versioned = re.search(r"-v\d+$", scale.env)
        if stem(scale.env) == stem(env_id) and (not versioned or env_id.endswith(versioned.group())):
            return scale
    return None


def _rows(name: str) -> list[dict[str, str]]:
    with open(DATA / name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
