"""Equivalence verdicts of this project's runs against CleanRL's published tables.

Each verdict comes from two one-sided t-tests (TOST) at 5%. Their margin is fixed beforehand: 5% of the environment's
published scale.
"""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
from campaign_rows import markdown, rows_of, shown, with_precision

from ppo_bench.commands.report.groups import rank
from ppo_bench.commands.report.published import MARGIN, equivalence_margin, stem
from ppo_bench.commands.report.statistics import SampleMoments, moments, tost_of_moments

SCRIPTS = {
    "classic": ["ppo"],
    "continuous": ["ppo_continuous_action"],
    "dm_control": ["ppo_continuous_action"],
    "atari": ["ppo_atari"],
    "atari_envpool": ["ppo_atari_envpool"],
    "atari_envpool_xla_jax": ["ppo_atari_envpool_xla_jax", "ppo_atari_envpool_xla_jax_scan"],
    "atari_lstm": ["ppo_atari_lstm"],
    "atari_multigpu": ["ppo_atari_multigpu"],
    "procgen": ["ppo_procgen"],
    "trxl_mortar_mayhem": ["ppo_trxl"],
    "trxl_mystery_path": ["ppo_trxl"],
}
"""The CleanRL scripts whose published tables a campaign reproduces, by the campaign's name."""
COLUMNS = (
    *("script", "env", "reference_mean", "reference_std", "framework", "backend", "steps", "seeds"),
    *("ours_mean", "low", "high", "verdict", "precision", "margin", "endless", "env_id"),
)
DECIDED = ("equivalent", "equivalent, though different", "different", "undecided")


class Reference(NamedTuple):
    """A published result of CleanRL's: a row of references.csv."""

    variant: str
    env: str
    """Id of the environment."""
    steps: int
    mean: float
    std: float
    """Standard deviation with `ddof=0`."""
    seeds: int
    source: str


def references() -> list[Reference]:
    """All published results."""
    path = Path(__file__).parent / "references.csv"
    return [Reference(*row) for row in duckdb.connect().read_csv(str(path)).fetchall()]


def moments_of(reference: Reference) -> SampleMoments:
    """Mean, standard deviation with `ddof=1`, and number of a published result's seeds."""
    std = reference.std * math.sqrt(reference.seeds / (reference.seeds - 1))
    return SampleMoments(reference.mean, std, reference.seeds)


class Way(NamedTuple):
    """A way of executing a campaign's runs, their number of steps and the id of their environment."""

    framework: str
    backend: str
    precision: str
    steps: int
    env_id: str

    def __str__(self) -> str:
        """Words such as `torch_compile, envpool`."""
        return f"{self.framework}, {with_precision(self.backend, self.precision)}"


class Row(NamedTuple):
    """A line of verdicts.csv: a published result beside this project's runs in one way of executing them."""

    reference: Reference
    way: Way
    seeds: int
    ours: SampleMoments | None
    low: float
    """Lower end of the 90% interval of the difference of mean returns."""
    high: float
    """Upper end of that interval."""
    verdict: str

    @property
    def margin(self) -> float:
        """The margin within which a difference counts as none."""
        return equivalence_margin(self.reference.env, self.reference.mean, MARGIN)

    @property
    def endless(self) -> float:
        """Half of the 90% interval's width with endless seeds of ours, from the spread of the published ones alone."""
        theirs = moments_of(self.reference)
        found = tost_of_moments(SampleMoments(theirs.mean, 0.0, 10**9), theirs, self.margin)
        return (found.high - found.low) / 2


def verdicts(out: Path) -> list[Row]:
    """Rows for each published result: one for each `Way` of its runs.

    A published result without runs has one row, with the verdict "not trained".
    """
    runs, found = rows_of(out), []
    for reference in references():
        of_script = [r for r in runs if reference.variant in SCRIPTS.get(r["campaign"], [])]
        own = [r for r in of_script if _same_env(r, reference)]
        ways = sorted({_way(run) for run in own}, key=lambda way: (rank(way.framework), way))
        for way in ways:
            found.append(_beside(reference, way, np.array([r["final_return_mean"] for r in own if _way(r) == way])))
        if not ways:
            way = Way("", "", "", reference.steps, reference.env)
            found.append(Row(reference, way, 0, None, np.nan, np.nan, "not trained"))
    return found


def _same_env(run: dict[str, Any], reference: Reference) -> bool:
    names = {stem(run["env_id"]), stem(run["env"].removeprefix("dmc_"))}
    return stem(reference.env) in names


def _way(run: dict[str, Any]) -> Way:
    return Way(*(run[name] for name in Way._fields))


def is_another_version(env_id: str, other: str) -> bool:
    """Whether two ids, such as `Pusher-v5` and `Pusher-v4`, differ in nothing but the version."""
    return env_id != other and env_id.rpartition("-v")[0] == other.rpartition("-v")[0]


def _beside(reference: Reference, way: Way, finals: np.ndarray) -> Row:
    ours, row = moments(finals), Row(reference, way, len(finals), moments(finals), np.nan, np.nan, "")
    if way.steps != reference.steps:
        return row._replace(verdict="other number of steps")
    if is_another_version(way.env_id, reference.env):
        return row._replace(verdict=f"another version, {way.env_id}")
    tests = tost_of_moments(ours, moments_of(reference), row.margin)
    return row._replace(low=tests.low, high=tests.high, verdict=tests.verdict)


def as_csv(found: Sequence[Row]) -> str:
    """The verdicts as CSV text."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in found:
        numbers = [row.ours.mean if row.ours else np.nan, row.low, row.high]
        rounded = [f"{value:.2f}" if np.isfinite(value) else "" for value in numbers]
        about = [row.reference.variant, row.reference.env, row.reference.mean, row.reference.std]
        way = row.way
        ran = [way.framework, way.backend, way.steps, row.seeds]
        limits = [f"{row.margin:.2f}", f"{row.endless:.2f}"]
        writer.writerow([*about, *ran, *rounded, row.verdict, way.precision, *limits, way.env_id if row.ours else ""])
    return file.getvalue()


def table(found: Sequence[Row]) -> str:
    """A Markdown table of the rows that have runs, and a list of the others."""
    heads = ("CleanRL's script", "env", "published", "framework, backend", "seeds", "ours", "difference [90%]")
    rows: list[list[str]] = []
    for row in found:
        if row.ours is None:
            continue
        reference, ours = row.reference, row.ours
        difference = ""
        if np.isfinite(row.low):
            difference = f"{ours.mean - reference.mean:+.2f} [{row.low:+.2f}, {row.high:+.2f}]"
        cells = [
            *(f"`{reference.variant}`", reference.env, f"{reference.mean:.2f} ± {reference.std:.2f}"),
            *(str(row.way), str(row.seeds), shown(ours)),
            *(difference, f"{row.margin:,.1f}", f"{row.endless:,.1f}", row.verdict),
        ]
        rows.append(cells)
    missing: dict[str, list[str]] = {}
    for row in found:
        if row.ours is None:
            missing.setdefault(row.reference.variant, []).append(row.reference.env)
    untrained = [f"- `{script}` on {', '.join(envs)}" for script, envs in missing.items()]
    made = markdown((*heads, "margin", "endless seeds", "verdict"), rows)
    return "\n".join([made, *(["", "Not trained:", "", *untrained] if untrained else [])])


def unpublished(out: Path) -> str:
    """A Markdown table of the campaigns that no published table belongs to."""
    own = [run for run in rows_of(out) if run["campaign"] not in SCRIPTS]
    rows = []
    for way in dict.fromkeys(map(_way, own)):
        finals = np.array([run["final_return_mean"] for run in own if _way(run) == way])
        rows.append((way.env_id, way, f"{way.steps / 1e6:g}", len(finals), shown(moments(finals))))
    return markdown(("env", "framework, backend", "million steps", "seeds", "final return"), rows)


def summary(found: Sequence[Row]) -> str:
    """The numbers of rows by verdict, in two sentences."""
    of_row = {(row.reference.variant, row.reference.env): row for row in found}
    judged = {(row.reference.variant, row.reference.env) for row in found if row.verdict in DECIDED}
    count = Counter(row.verdict for row in found)
    counts = ", ".join(f"{count[verdict]} {verdict}" for verdict in DECIDED if count[verdict])
    wide = sum(row.endless > row.margin for row in of_row.values())
    return (
        f"{len(judged)} of {len(of_row)} published rows are trained. Their verdicts, one for each backend and "
        f"framework that trained them: {counts or 'none'}. For {wide} of the {len(of_row)} rows the published seeds "
        "spread so much that more seeds of ours cannot narrow the interval to the margin."
    )
