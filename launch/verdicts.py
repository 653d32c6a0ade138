"""Equivalence verdicts: of this project's runs against CleanRL's published tables, and between frameworks.

Each verdict comes from two one-sided t-tests (TOST) at 5%. Their margin is fixed beforehand: 5% of the environment's
published scale.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

from ppo_bench.commands.report.against import MARGIN, margin_beside
from ppo_bench.commands.report.groups import FRAMEWORKS
from ppo_bench.commands.report.published import Reference, references, stem
from ppo_bench.commands.report.statistics import SampleMoments, moments, tost, tost_of_moments

SCRIPTS = {
    "classic": "ppo",
    "continuous": "ppo_continuous_action",
    "dm_control": "ppo_continuous_action",
    "atari": "ppo_atari",
    "atari_envpool": "ppo_atari_envpool",
    "atari_lstm": "ppo_atari_lstm",
    "atari_multigpu": "ppo_atari_multigpu",
    "procgen": "ppo_procgen",
}
"""The CleanRL script whose published table a campaign reproduces, by the campaign's name."""
COLUMNS = (
    *("script", "env", "reference_mean", "reference_std", "framework", "backend", "steps", "seeds"),
    *("ours_mean", "low", "high", "verdict", "precision"),
)
DECIDED = ("equivalent", "equivalent, though different", "different", "undecided")
KEPT = ("campaign", "env", "env_id", "backend", "framework", "precision", "seed", "steps", "switches")
"""Columns that identify a run; `switches` are the `SWITCHES` of a campaign over them, and empty in other campaigns."""
PAIR = "_pair"
"""End of the names of campaigns over `SWITCHES`."""
SWITCHES = ("clip_vloss", "mask_resets", "bootstrap_truncated")
"""Keys of `ppo` in which CleanRL's PyTorch and JAX scripts for one task may differ."""
MEASURED = (
    *("final_return_mean", "mean_sps", "wall_seconds", "compile_seconds", "resumes"),
    *("cpu", "cores", "git_commit", "started"),
)


class Way(NamedTuple):
    """A way of executing a campaign's runs, and their number of steps."""

    framework: str
    backend: str
    precision: str
    steps: int

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


def rows_of(out: Path) -> list[dict[str, Any]]:
    """The rows of runs.parquet as dictionaries, in order."""
    names = (*KEPT, *MEASURED)
    query = f"select {', '.join(names)} from read_parquet('{out / 'runs.parquet'}')"
    found = duckdb.connect().execute(query).fetchall()
    return [dict(zip(names, row, strict=True)) for row in found]


def verdicts(out: Path) -> list[Row]:
    """Rows for each published result of CleanRL: one for each `Way` of its runs.

    A published result without runs has one row, with the verdict "not trained".
    """
    runs, found = rows_of(out), []
    for reference in references():
        if reference.system != "CleanRL" or reference.mean is None:
            continue
        own = [r for r in runs if SCRIPTS.get(r["campaign"]) == reference.variant and _same_env(r, reference)]
        ways = sorted({_way(run) for run in own}, key=lambda way: (_rank(way.framework), way))
        for way in ways:
            found.append(_beside(reference, way, np.array([r["final_return_mean"] for r in own if _way(r) == way])))
        if not ways:
            way = Way("", "", "", reference.steps or 0)
            found.append(Row(reference, way, 0, None, np.nan, np.nan, "not trained"))
    return found


def _same_env(run: dict[str, Any], reference: Reference) -> bool:
    names = {stem(run["env_id"]), stem(run["env"].removeprefix("dmc_"))}
    return stem(reference.env) in names


def _way(run: dict[str, Any]) -> Way:
    return Way(*(run[name] for name in Way._fields))


def with_precision(words: str, precision: str) -> str:
    """The words, with the precision unless it is the default, float32."""
    return words if precision == "float32" else f"{words}, {precision}"


def _rank(framework: str) -> int:
    return FRAMEWORKS.index(framework) if framework in FRAMEWORKS else len(FRAMEWORKS)


def _beside(reference: Reference, way: Way, finals: np.ndarray) -> Row:
    ours, n = moments(finals), reference.seeds or 0
    assert reference.mean is not None
    if way.steps != reference.steps:
        return Row(reference, way, ours.n, ours, np.nan, np.nan, "other number of steps")
    theirs = SampleMoments(reference.mean, (reference.std or 0.0) * (n / (n - 1)) ** 0.5, n)
    tests = tost_of_moments(ours, theirs, margin_beside(reference.env, reference.mean, MARGIN))
    return Row(reference, way, ours.n, ours, tests.low, tests.high, tests.verdict)


def as_csv(found: Sequence[Row]) -> str:
    """The verdicts as CSV text."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in found:
        numbers = [row.ours.mean if row.ours else np.nan, row.low, row.high]
        shown = [f"{value:.2f}" if np.isfinite(value) else "" for value in numbers]
        about = [row.reference.variant, row.reference.env, row.reference.mean, row.reference.std]
        way = row.way
        ran = [way.framework, way.backend, way.steps, row.seeds]
        writer.writerow([*about, *ran, *shown, row.verdict, way.precision])
    return file.getvalue()


def table(found: Sequence[Row]) -> str:
    """A Markdown table of the rows that have runs, and a line with the number and the names of the others."""
    head = "| CleanRL's script | env | published | framework, backend | seeds | ours | difference [90%] | verdict |"
    lines = [head, "|" + "---|" * 8]
    for row in found:
        if row.ours is None:
            continue
        reference, ours = row.reference, row.ours
        difference = ""
        if np.isfinite(row.low):
            difference = f"{ours.mean - (reference.mean or 0.0):+.2f} [{row.low:+.2f}, {row.high:+.2f}]"
        cells = [
            *(f"`{reference.variant}`", reference.env, f"{reference.mean:.2f} ± {reference.std:.2f}"),
            *(str(row.way), str(row.seeds), _said(ours)),
            *(difference, row.verdict),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    missing = [f"{row.reference.variant} on {row.reference.env}" for row in found if row.ours is None]
    published = {(row.reference.variant, row.reference.env) for row in found}
    judged = {(row.reference.variant, row.reference.env) for row in found if row.verdict in DECIDED}
    said = f"{len(judged)} of {len(published)} published rows have a verdict. Not trained: {'; '.join(missing)}."
    lines += ["", said]
    return "\n".join(lines)


def _said(ours: SampleMoments) -> str:
    return f"{ours.mean:.2f} ± {ours.std:.2f}" if ours.n > 1 else f"{ours.mean:.2f}"


def trained(out: Path) -> str:
    """A Markdown table of what each campaign took: runs, steps, hours of training, and how often runs were resumed."""
    runs = rows_of(out)
    lines = ["| campaign | runs | million steps | hours of training | times resumed | CPU |", "|" + "---|" * 6]
    for campaign in dict.fromkeys(run["campaign"] for run in runs):
        own = [run for run in runs if run["campaign"] == campaign]
        resumes = [run["resumes"] for run in own if run["resumes"] is not None]
        known = f"{sum(resumes)}" if resumes else "not recorded"
        if 0 < len(resumes) < len(own):
            known += f", in {len(resumes)} of the runs"
        cpus = sorted({f"{run['cpu']}, {run['cores']} core{'' if run['cores'] == 1 else 's'}" for run in own})
        steps = sum(run["steps"] for run in own) / 1e6
        # Seeds of one program (`num_seeds`) have the program's seconds, each of them.
        programs = {tuple(run[key] for key in (*KEPT, "wall_seconds") if key != "seed") for run in own}
        hours = sum(program[-1] for program in programs) / 3600
        lines.append(f"| {campaign} | {len(own)} | {steps:,.0f} | {hours:.1f} | {known} | {'; '.join(cpus)} |")
    return "\n".join(lines)


def between_frameworks(out: Path) -> str:
    """A Markdown table that compares final returns and areas under the curve of each pair of frameworks on a task."""
    runs, areas = [run for run in rows_of(out) if not run["switches"]], _areas(out)
    head = "| env, backend | pair | seeds | final return [90%] | verdict | area under the curve [90%] | verdict |"
    lines = [head, "|" + "---|" * 7]
    for task in dict.fromkeys((r["env"], r["backend"], r["precision"]) for r in runs):
        own = [r for r in runs if (r["env"], r["backend"], r["precision"]) == task]
        by_seed = {name: {r["seed"]: r for r in own if r["framework"] == name} for name in FRAMEWORKS}
        for later, ours in enumerate(FRAMEWORKS):
            for theirs in FRAMEWORKS[:later]:
                seeds = sorted(by_seed[ours].keys() & by_seed[theirs].keys())
                if len(seeds) > 1:
                    pair = [[by_seed[name][seed] for seed in seeds] for name in (ours, theirs)]
                    cells = [with_precision(f"{task[0]}, {task[1]}", task[2]), f"{ours}, {theirs}", str(len(seeds))]
                    cells += _compared(pair, lambda r: float(r["final_return_mean"]))
                    cells += _compared(pair, lambda r: areas[tuple(r[key] for key in KEPT)])
                    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def between_switches(out: Path) -> str:
    """A Markdown table that compares the runs of each campaign over `SWITCHES` with those of its first setting."""
    runs = [run for run in rows_of(out) if run["switches"]]
    head = "| env, backend | framework | switches | seeds | final return | difference from the first [90%] | verdict |"
    lines = [head, "|" + "---|" * 7]
    keys = ("campaign", "env", "backend", "framework", "precision")
    for task in dict.fromkeys(tuple(r[key] for key in keys) for r in runs):
        own = [r for r in runs if tuple(r[key] for key in keys) == task]
        finals = {
            switches: np.array([r["final_return_mean"] for r in own if r["switches"] == switches])
            for switches in sorted({r["switches"] for r in own})
        }
        first = next(iter(finals.values()))
        for switches, of_switches in finals.items():
            ours, cells = moments(of_switches), ["", ""]
            if of_switches is not first and min(len(first), len(of_switches)) > 1:
                found = tost(of_switches, first, margin_beside(own[0]["env_id"], float(first.mean()), MARGIN))
                cells = [f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}]", found.verdict]
            about = [f"{task[1]}, {task[2]}", with_precision(task[3], task[4]), switches, str(ours.n), _said(ours)]
            lines.append(f"| {' | '.join([*about, *cells])} |")
    return "\n".join(lines)


def _compared(pair: Sequence[Sequence[dict[str, Any]]], value: Callable[[dict[str, Any]], float]) -> list[str]:
    """Two cells: difference and verdict of a paired test of `value`, for runs of two frameworks with the same seeds."""
    ours, theirs = (np.array([value(run) for run in side]) for side in pair)
    found = tost(ours, theirs, margin_beside(pair[0][0]["env_id"], float(theirs.mean()), MARGIN), paired=True)
    return [f"{found.difference:+.2f} [{found.low:+.2f}, {found.high:+.2f}]", found.verdict]


def _areas(out: Path) -> dict[tuple[Any, ...], float]:
    """Area under the learning curve of each run: its mean return over steps, from the first episode on."""
    keys = ", ".join(KEPT)
    file = out / "curves.parquet"
    query = f"select {keys}, avg(value) from read_parquet('{file}') where axis = 'steps' group by {keys}"
    return {tuple(row[:-1]): row[-1] for row in duckdb.connect().execute(query).fetchall()}
