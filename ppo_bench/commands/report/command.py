"""`python -m ppo_bench.report DIR...`: which framework is faster, by how much, and do they learn the same?

It reads run folders and writes report.html, figures/, tables/, marl_eval.json and runs.parquet; if writing fails, an
earlier report stays as it was.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from pathlib import Path

from ppo_bench.commands.report.against import MARGIN
from ppo_bench.commands.report.analysis import analyse
from ppo_bench.commands.report.charts import figures
from ppo_bench.commands.report.checks import left_out, warnings
from ppo_bench.commands.report.database import Database, open_database
from ppo_bench.commands.report.exports import write_marl_eval, write_parquet
from ppo_bench.commands.report.figures import draw
from ppo_bench.commands.report.groups import ComparedTask, sort_runs
from ppo_bench.commands.report.json_lines import duckdb_error, first_line
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.over_envs import overall
from ppo_bench.commands.report.page import page
from ppo_bench.commands.report.summary import Paragraph, summary
from ppo_bench.commands.report.table import to_csv, to_markdown
from ppo_bench.commands.report.tables import tables
from ppo_bench.common.cli import Parser
from ppo_bench.common.errors import ConfigError, Failed, require
from ppo_bench.common.progress import say

BASELINE = "torch_eager"
WRITTEN = frozenset(("report.html", "figures", "tables", "marl_eval.json", "runs.parquet"))
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
    parser.add_argument("--baseline", default=None, help=f"framework that speeds are compared with ({BASELINE})")
    parser.add_argument(
        "--margin",
        type=float,
        default=MARGIN,
        help=f"margin of equivalence, as a fraction of a task's scale or the baseline's mean ({MARGIN})",
    )
    parser.add_argument("--margin-return", type=float, help="margin of equivalence as a return, instead of --margin")
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
    tasks = sort_runs(database.runs)
    baseline = _baseline(words.baseline, database)
    options = Options(baseline, words.margin, words.margin_return, words.seed, words.resamples)
    sentences = _write(database, tasks, options, out)
    print("\n".join(map(str, sentences)))
    print(out / "report.html")
    return 0


def _baseline(asked: str | None, database: Database) -> str:
    frameworks = sorted({run.framework for run in database.runs})
    if asked is not None and asked not in frameworks:
        raise ConfigError(f"--baseline {asked}: no run has that framework; choose one of {', '.join(frameworks)}")
    return asked or (BASELINE if BASELINE in frameworks else frameworks[0])


def _check_out(out: Path) -> None:
    """Raise `ConfigError` if `out` is a file, or a folder with anything but an earlier report."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file: name a folder")
    others = sorted({path.name for path in out.iterdir()} - WRITTEN) if out.exists() else []
    if others:
        raise ConfigError(f"--out {out} holds what is no report ({others[0]}): name a new folder, or an older report's")


def _write(database: Database, tasks: list[ComparedTask], options: Options, out: Path) -> list[Paragraph]:
    """Write the report to a temporary folder, rename that to `out`, and return the summary."""
    analysis = analyse(tasks, options)
    charts = figures(analysis, database.connection, database.drawn, options)
    over_envs = overall(tasks, options)
    found = tables(analysis, options, database.runs, database.left_out, over_envs)
    doubts = [*warnings(tasks, options.baseline), *database.warnings]
    for doubt in [*doubts, *database.left_out]:
        say(f"warning: {doubt}")
    sentences = summary(analysis, options, over_envs)
    finished = sum(run.finished for run in database.runs)
    counts = f"{len(database.runs)} runs, {finished} finished; {len(database.left_out)} folders left out"
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        os.chmod(aside, 0o755)
        (aside / "figures").mkdir()
        (aside / "tables").mkdir()
        for figure in charts:
            draw(figure, aside / "figures")
        for table in found:
            (aside / "tables" / f"{table.key}.csv").write_text(to_csv(table), encoding="utf-8")
            (aside / "tables" / f"{table.key}.md").write_text(to_markdown(table), encoding="utf-8")
        write_marl_eval(database.connection, tasks, aside / "marl_eval.json")
        write_parquet(database.connection, aside / "runs.parquet")
        method = METHOD.format(resamples=options.resamples, seed=options.seed, margin=options.margin_in_words)
        doubts += left_out(database.left_out)
        html = page(charts, found, counts=counts, summary=sentences, warnings=doubts, method=method)
        (aside / "report.html").write_text(html, encoding="utf-8")
        _replace(out, aside)
    except duckdb_error() as error:
        raise Failed(f"cannot write {out}: {first_line(error)}") from error
    except OSError as error:
        raise Failed(f"cannot write {out}: {error.strerror or error}; what was there is kept") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return sentences


def _replace(out: Path, aside: Path) -> None:
    """Put `aside` in place of `out`."""
    if not out.exists():
        aside.rename(out)
        return
    older = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent)) / "older"
    try:
        out.rename(older)
        aside.rename(out)
    finally:
        if older.exists() and not out.exists():
            older.rename(out)
        shutil.rmtree(older.parent, ignore_errors=True)
