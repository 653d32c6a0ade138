#!/usr/bin/env python3
"""Comparison with published results: `launch/results.py` rewrites docs/results/ and the tables of docs/results.md.

`launch/results.py RUNS...` first adds the finished runs of `experiment=campaign/...` below these folders to
docs/results/runs.parquet and curves.parquet, the sources of everything else. Rows of earlier runs stay there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
from campaign_rows import KEPT, MEASURED, trained, with_precision
from comparisons import between_backends, between_frameworks
from verdicts import as_csv, summary, table, unpublished, verdicts

from ppo_bench.commands.report.charts import STEPS, TIME, Figure, Lines, Series
from ppo_bench.commands.report.curves import Curves, curves
from ppo_bench.commands.report.database import open_database
from ppo_bench.commands.report.figures import draw
from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.statistics import mean_band
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.common.progress import print_status
from ppo_bench.mathematics.precision import PRECISIONS

DOCS = Path(__file__).resolve().parents[1] / "docs"


def main(arguments: list[str]) -> int:
    """Add the runs below the given folders to the Parquet files, then rewrite tables and figures from these files."""
    parser = Parser("python launch/results.py", description=__doc__)
    parser.add_argument("folders", nargs="*", metavar="RUNS", help="folders with finished runs of the campaign")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where results.md and results/ are (docs)")
    options = parser.parse_args(arguments)
    out = options.docs / "results"
    if options.folders:
        out.mkdir(exist_ok=True)
        take_in(options.folders, out)
    found = verdicts(out)
    (out / "verdicts.csv").write_text(as_csv(found))
    page = options.docs / "results.md"
    tables = {
        "summary": summary(found),
        "verdicts": table(found),
        "unpublished": unpublished(out),
        "frameworks": between_frameworks(out),
        "backends": between_backends(out),
        "trained": trained(out),
    }
    page.write_text(filled(page.read_text(), tables))
    draw_curves(out)
    print(out / "verdicts.csv")
    return 0


# --- Taking runs in ---------------------------------------------------------------------------------------------------


def take_in(folders: Sequence[str], out: Path) -> None:
    """Add the finished runs below `folders` to the Parquet files in `out`; they replace rows of the same runs.

    Runs in which no episode has ended have no return and are left out. Raises `ConfigError` if no run is left.
    """
    database = open_database(folders)
    database.print_warnings()
    finished = [run for run in database.runs if run.finished and _campaign(run.name)]
    runs = [run for run in finished if run.final_return_mean is not None]
    for run in finished:
        if run.final_return_mean is None:
            print_status(f"warning: left out: {run.folder}: no episode has ended")
    if not runs:
        raise ConfigError(f"{' '.join(folders)}: no finished run of a campaign (experiment=campaign/...) is there")
    _check_alike(runs)
    columns = ", ".join(f"{name} {_kind(name)}" for name in (*KEPT, *MEASURED))
    con = duckdb.connect()
    con.execute(f"create table runs ({columns})")
    con.execute(
        f"create table curves ({', '.join(f'{name} {_kind(name)}' for name in KEPT)}, "
        "axis VARCHAR, cell UTINYINT, x FLOAT, value FLOAT)"
    )
    for run in runs:
        device = run.facts.get("execution.gpu") or run.facts.get("hardware.cpu")
        facts = {"cpu": device, "cores": run.facts.get("hardware.cores_available")}
        values = {**vars(run), **facts, "git_commit": run.facts.get("git_commit"), "campaign": _campaign(run.name)}
        values |= {"steps": run.total_timesteps, "precision": run.execution["precision"]}
        row = [values[name] for name in (*KEPT, *MEASURED)]
        con.execute(f"insert into runs values ({', '.join('?' * len(row))})", row)
        for axis, column in (("steps", "global_step"), ("seconds", "training_seconds")):
            (curve,) = curves(database.connection, [[run]], column)
            cells = enumerate(zip(curve.x.tolist(), curve.runs[0].tolist(), strict=True))
            points = [_plain((*row[: len(KEPT)], axis, k, x, value)) for k, (x, value) in cells]
            con.executemany(f"insert into curves values ({', '.join('?' * (len(KEPT) + 4))})", points)
    con.execute("create table taken as select * from runs")  # the new runs; `runs` will also hold earlier ones
    for name in ("runs", "curves"):
        file = out / f"{name}.parquet"
        if file.exists():
            same = " and ".join(f"old.{key} = taken.{key}" for key in KEPT)
            con.execute(
                f"insert into {name} by name select old.* from read_parquet('{file}') as old "
                f"where not exists (select 1 from taken where {same})"
            )
        order = ", ".join((*KEPT, *(("axis", "cell") if name == "curves" else ())))
        aside = file.with_suffix(".tmp")
        con.execute(f"copy (select * from {name} order by {order}) to '{aside}' (format parquet, compression zstd)")
        aside.replace(file)


def _check_alike(runs: Sequence[Run]) -> None:
    """Raise `ConfigError` if two of these runs would be one row, or would be compared with other hyperparameters."""
    of_task: dict[tuple[Any, ...], Run] = {}
    of_row: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        task = (run.name, run.env_id, run.backend, run.total_timesteps)
        other = of_task.setdefault(task, run)
        if run.setting != other.setting:
            raise ConfigError(f"{run.folder} and {other.folder} have different settings: name runs of one setting")
        other = of_row.setdefault((*task, run.framework, run.execution["precision"], run.seed), run)
        if other is not run:
            raise ConfigError(f"{run.folder} and {other.folder} would be one row: name one of them")


def _campaign(name: str) -> str | None:
    return name.removeprefix("campaign/") if name.startswith("campaign/") else None


def _kind(name: str) -> str:
    if name in ("seed", "steps", "cores", "resumes"):
        return "BIGINT"
    return "DOUBLE" if name.endswith(("_mean", "_sps", "_seconds")) else "VARCHAR"


def _plain(values: Iterable[Any]) -> list[Any]:
    return [None if isinstance(value, float) and not np.isfinite(value) else value for value in values]


# --- Pictures and pages -----------------------------------------------------------------------------------------------


def draw_curves(out: Path) -> None:
    """Draw a figure for each task: return over steps and over time, with a curve for each framework."""
    con = duckdb.connect()
    file = out / "curves.parquet"
    tasks = con.execute(f"select distinct campaign, env, backend from read_parquet('{file}') order by all").fetchall()
    for task in tasks:
        charts = [_chart(con, file, task, axis, *about) for axis, about in (("steps", STEPS), ("seconds", TIME))]
        draw(Figure("-".join(task), "learning", f"{task[1]}, {task[2]}", charts), out)
        (out / f"{'-'.join(task)}.png").unlink()


def _chart(con: Any, file: Path, task: Sequence[str], axis: str, title: str, label: str) -> Lines:
    where = f"from read_parquet('{file}') where campaign = ? and env = ? and backend = ?"
    ways = con.execute(f"select distinct framework, precision, env_id {where}", task).fetchall()
    versions = len({env_id for *_, env_id in ways}) > 1
    series: list[Series] = []
    order = {name: place for place, name in enumerate(PRECISIONS)}
    ways.sort(key=lambda way: (FRAMEWORKS.index(way[0]), order[way[1]], *way[2:]))
    for framework, precision, env_id in ways:
        found = con.execute(
            f"select x, value {where} and framework = ? and precision = ? and env_id = ? "
            "and axis = ? order by seed, steps, cell",
            [*task, framework, precision, env_id, axis],
        ).fetchnumpy()
        x, values = (np.ma.filled(found[key].astype(float), np.nan).reshape(-1, 100) for key in ("x", "value"))
        grid = (np.arange(100) + 0.5) * x.max() / 99.5
        runs = np.stack([_on(grid, own, value) for own, value in zip(x, values, strict=True)])
        usual = FRAMEWORKS.index(framework) + len(FRAMEWORKS) * order[precision]
        colour = len(series) if versions else usual
        band = mean_band(runs)
        name = with_precision(framework, precision)
        series.append(Series(f"{name}, {env_id}" if versions else name, colour, Curves(grid, *band, runs)))
    return Lines(title, label, "episodic return", series)


def _on(grid: np.ndarray, x: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A run's curve interpolated to `grid`; NaN outside of its known values."""
    known = np.isfinite(values)
    return np.interp(grid, x[known], values[known], left=np.nan, right=np.nan)


def filled(page: str, blocks: dict[str, str]) -> str:
    """`page` with the text between `<!-- name -->` and `<!-- /name -->` replaced, for each name in `blocks`."""
    for name, text in blocks.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        before, _, after = page.partition(begin)
        assert end in after, f"the page has no block {begin}"
        page = f"{before}{begin}\n{text}\n{end}{after.partition(end)[2]}"
    return page


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
