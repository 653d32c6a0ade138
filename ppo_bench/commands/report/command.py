"""`python -m ppo_bench.report DIR...`: which framework is faster, by how much, and do they learn the same?

It reads run folders and writes report.html, tables/, runs.parquet and, with --png, figures/; if writing fails, an
earlier report stays as it was. --by compares the values of any key that runs differ in, such as ppo.learning_rate.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

from ppo_bench.commands.report.analysis import analyse
from ppo_bench.commands.report.chart_builders import figures
from ppo_bench.commands.report.checks import left_out, warnings
from ppo_bench.commands.report.database import open_database
from ppo_bench.commands.report.figures import draw
from ppo_bench.commands.report.groups import FRAMEWORK, ComparedTask, group_names, sort_runs
from ppo_bench.commands.report.json_lines import duckdb_error, first_line
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.page import page
from ppo_bench.commands.report.published import MARGIN
from ppo_bench.commands.report.table import to_csv, to_markdown, to_text
from ppo_bench.commands.report.tables import tables
from ppo_bench.common.cli import Parser
from ppo_bench.common.errors import ConfigError, Failed, require
from ppo_bench.common.progress import say

WRITTEN = frozenset(("report.html", "figures", "tables", "runs.parquet", "marl_eval.json"))
"""What a report of this or an earlier version has, and a new one replaces."""
PRINTED_ROWS = 40
METHOD = (
    "Intervals: 95%; means of one task Student's over seeds, all else percentile bootstrap, stratified by environment "
    "(Agarwal et al. 2021), {resamples:,} resamples, seed {seed}. Equivalence: two one-sided t-tests at 5% with a "
    "margin of {margin}. Final return: mean of the last 100 training episodes."
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
    parser.add_argument("--margin-return", type=float, help="margin of equivalence as a return, instead of --margin")
    parser.add_argument("--png", action="store_true", help="write each chart to figures/, too, as PNG and SVG")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bootstrap (0)")
    parser.add_argument("--resamples", type=int, default=2000, help="resamples of the bootstrap (2000)")
    words = parser.parse_args(arguments)
    if not 0 < words.margin < 1:
        parser.error("--margin must lie between 0 and 1")
    if words.margin_return is not None and not 0 < words.margin_return < math.inf:
        parser.error("--margin-return must be above 0")
    if words.seed < 0 or words.resamples < 100:
        parser.error("--seed must not be negative, and --resamples at least 100")
    out = words.out or Path(words.folders[0]) / "report"
    _check_out(out)
    for package in ("jinja2", "scipy"):
        require(package, "report", "the report")
    database = open_database(words.folders)
    tasks = sort_runs(database.runs, words.by)
    baseline = _baseline(words.baseline, tasks)
    options = Options(baseline, words.margin, words.margin_return, words.seed, words.resamples, words.by)
    analysis = analyse(tasks, options)
    charts = figures(analysis, database.connection, database.drawn, options)
    found = tables(analysis, options, database.runs, database.left_out)
    doubts = [*warnings(tasks, options), *database.warnings]
    for doubt in [*doubts, *database.left_out]:
        say(f"warning: {doubt}")
    finished = sum(run.finished for run in database.runs)
    html = page(
        charts,
        found,
        title=words.title,
        counts=f"{len(database.runs)} runs, {finished} finished; {len(database.left_out)} folders left out",
        warnings=[*doubts, *left_out(database.left_out)],
        method=METHOD.format(resamples=options.resamples, seed=options.seed, margin=options.margin_in_words),
    )

    def write(folder: Path) -> None:
        (folder / "report.html").write_text(html, encoding="utf-8")
        (folder / "tables").mkdir()
        for table in found:
            (folder / "tables" / f"{table.key}.csv").write_text(to_csv(table), encoding="utf-8")
            (folder / "tables" / f"{table.key}.md").write_text(to_markdown(table), encoding="utf-8")
        database.write_parquet(folder / "runs.parquet")
        if words.png:
            (folder / "figures").mkdir()
            for figure in charts:
                draw(figure, folder / "figures")

    _replace(out, write)
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


def _replace(out: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside `out`, then put it in the place of `out`. Raises `Failed`."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as scratch:
            new, old = Path(scratch) / "new", Path(scratch) / "old"
            new.mkdir()
            write(new)
            if out.exists():
                out.rename(old)
            try:
                new.rename(out)
            except OSError:
                old.rename(out)
                raise
    except duckdb_error() as error:
        raise Failed(f"cannot write {out}: {first_line(error)}") from error
    except OSError as error:
        raise Failed(f"cannot write {out}: {error.strerror or error}; what was there is kept") from error
