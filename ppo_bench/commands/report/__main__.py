"""`python -m ppo_bench.report DIR...`: which framework is faster, by how much, and do they learn the same?

It reads run folders and writes report.html, tables/, runs.parquet and, with --png, figures/. --by compares the values
of any key that runs differ in, such as ppo.learning_rate.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from ppo_bench.commands.report.analysis import analyse
from ppo_bench.commands.report.charts import Figure, figures
from ppo_bench.commands.report.checks import some, warnings
from ppo_bench.commands.report.database import Database, open_database
from ppo_bench.commands.report.figures import draw
from ppo_bench.commands.report.groups import FRAMEWORK, ComparedTask, group_names, sort_runs
from ppo_bench.commands.report.page import page
from ppo_bench.commands.report.published import MARGIN
from ppo_bench.commands.report.statistics import RESAMPLES
from ppo_bench.commands.report.tables import Table, tables, to_csv, to_text
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError, RunError, one_line, require
from ppo_bench.common.progress import print_status

WRITTEN = frozenset(("report.html", "figures", "tables", "runs.parquet", "marl_eval.json"))
"""What a report has, or had in earlier versions, and a new one replaces."""
PRINTED_ROWS = 40
METHOD = (
    f"Intervals: 95%; means of one task Student's over seeds, all else percentile bootstrap, stratified by environment "
    f"(Agarwal et al. 2021), {RESAMPLES:,} resamples. Equivalence: two one-sided t-tests at 5% with a margin of "
    "{margin}. Final return: mean of the last 100 training episodes."
)


def main(arguments: list[str]) -> int:
    """Write the report; print its summary and, as the last line, the path of its page."""
    parser = Parser("python -m ppo_bench.report", description=__doc__)
    parser.add_argument("folders", metavar="DIR", nargs="+", help="outputs, or any folders with runs below them")
    parser.add_argument("--out", type=Path, help="folder to write (default: report within the first DIR)")
    parser.add_argument("--title", default="ppo_bench report", help="title of the page")
    parser.add_argument("--by", default=FRAMEWORK, metavar="KEY", help="key whose values are compared (framework)")
    parser.add_argument("--baseline", help="framework, or value of KEY, to compare with (torch_eager, or the first)")
    parser.add_argument(
        "--margin",
        type=float,
        default=MARGIN,
        help=f"margin of equivalence, as a fraction of a task's scale or the baseline's mean ({MARGIN})",
    )
    parser.add_argument("--png", action="store_true", help="write each chart to figures/, too, as PNG and SVG")
    args = parser.parse_args(arguments)
    if not 0 < args.margin < 1:
        parser.error("--margin must lie between 0 and 1")
    out = args.out or Path(args.folders[0]) / "report"
    _check_out(out)
    for package in ("jinja2", "scipy"):
        require(package, "report", "the report")
    database = open_database(args.folders)
    tasks = sort_runs(database.runs, args.by)
    baseline = _baseline(args.baseline, tasks)
    analysis = analyse(tasks, baseline, args.margin)
    charts = figures(analysis, database, baseline)
    found = tables(analysis, args.by, database.runs, database.left_out)
    doubts = warnings(tasks, baseline)
    for doubt in doubts:
        print_status(f"warning: {doubt}")
    database.print_warnings()
    doubts += database.warnings
    if database.left_out:
        doubts.append(f"left out, for reasons at the end: {some([*database.left_out])}")
    finished = sum(run.finished for run in database.runs)
    counts = f"{len(database.runs)} runs, {finished} finished; {len(database.left_out)} folders left out"
    margin = f"{args.margin:.0%} of the task's published scale, or where it has none of {baseline}'s mean return"
    method = METHOD.format(margin=margin)
    html = page(charts, found, title=args.title, counts=counts, warnings=doubts, method=method)
    _write(out, html, found, database, charts if args.png else [])
    print(to_text(found[0], PRINTED_ROWS))
    print(out / "report.html")
    return 0


def _baseline(asked: str | None, tasks: list[ComparedTask]) -> str:
    """What others are compared with: a framework or a group's name; the first of them by default."""
    names = group_names(tasks)
    frameworks = {group.name: group.first.framework for task in tasks for group in task.groups}
    known = list(dict.fromkeys(frameworks[name] if name.startswith(frameworks[name]) else name for name in names))
    if asked is not None and asked not in (*known, *names):
        raise ConfigError(f"--baseline {asked}: no run has it; choose one of {', '.join(known)}")
    return asked or known[0]


def _check_out(out: Path) -> None:
    """Raise `ConfigError` if `out` is a file, or a folder with anything but an earlier report."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file: name a folder")
    others = sorted({path.name for path in out.iterdir()} - WRITTEN) if out.exists() else []
    if others:
        raise ConfigError(f"--out {out} holds what is no report ({others[0]}): name a new folder, or an older report's")


def _write(out: Path, html: str, found: Sequence[Table], database: Database, drawn: Sequence[Figure]) -> None:
    """Write the report to the folder `out`, in place of an older one. Raises `RunError`."""
    import duckdb

    try:
        for older in (out / name for name in WRITTEN):
            if older.is_dir():
                shutil.rmtree(older)
            else:
                older.unlink(missing_ok=True)
        (out / "tables").mkdir(parents=True)
        (out / "report.html").write_text(html, encoding="utf-8")
        for table in found:
            (out / "tables" / f"{table.key}.csv").write_text(to_csv(table), encoding="utf-8")
        database.connection.table("runs").write_parquet(str(out / "runs.parquet"))
        if drawn:
            (out / "figures").mkdir()
        for figure in drawn:
            draw(figure, out / "figures")
    except (OSError, duckdb.Error) as error:
        raise RunError(f"cannot write {out}: {one_line(error)}") from error


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
