"""`python -m ppo_bench.report DIR...`: which framework is faster, by how much, and do they learn the same?

It reads run folders and writes report.html, tables/ and, with --png, figures/. --by compares the values of any key
that runs differ in, such as ppo.learning_rate.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ppo_bench.commands.report.analysis import analyse
from ppo_bench.commands.report.charts import SUMMARIES, Figure, figures
from ppo_bench.commands.report.checks import warnings
from ppo_bench.commands.report.database import open_database
from ppo_bench.commands.report.figures import draw
from ppo_bench.commands.report.groups import FRAMEWORK, group_names, sort_runs
from ppo_bench.commands.report.page import page
from ppo_bench.commands.report.published import MARGIN
from ppo_bench.commands.report.tables import Table, tables, to_csv, to_text
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError, RunError, one_line, require
from ppo_bench.common.files import make_folder


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
    args.by = args.by.removesuffix(".name")  # a choice of a group, with all of its keys
    if not 0 < args.margin < 1:
        parser.error("--margin must lie between 0 and 1")
    out = args.out or Path(args.folders[0]) / "report"
    for package in ("jinja2", "scipy"):
        require(package, "report", "the report")
    database = open_database(args.folders)
    tasks = sort_runs(database.runs, args.by)
    names = group_names(tasks)
    first = names[0].partition(" ")[0] if args.by == FRAMEWORK else names[0]
    baseline = args.baseline or first
    if not any(f"{name} ".startswith(f"{baseline} ") for name in names):
        raise ConfigError(f"--baseline {baseline}: no run has it; choose one of {', '.join(names)}")
    analysis = analyse(tasks, baseline, args.margin)
    charts = figures(analysis, database)
    found = tables(analysis, args.by, database.runs)
    database.warnings = [*warnings(tasks), *database.warnings]
    database.print_warnings()
    finished = sum(run.finished for run in database.runs)
    counts = f"{len(database.runs)} runs, {finished} finished; {len(database.left_out)} folders left out"
    html = page(charts, found, title=args.title, counts=counts, warnings=database.warnings)
    _write(out, html, found, charts if args.png else [])
    print(to_text(found[0]))
    print(out / "report.html")
    return 0


def _write(out: Path, html: str, found: Sequence[Table], drawn: Sequence[Figure]) -> None:
    """Write the report to the folder `out`, over an older one. Raises `ConfigError` or `RunError`."""
    make_folder(out, "choose another folder by --out")
    try:
        for name in ("*_[0-9][0-9]_*", *SUMMARIES):  # charts of an older report, which this one may lack
            for chart in (out / "figures").glob(f"{name}.[ps][nv]g"):
                chart.unlink()
        (out / "tables").mkdir(exist_ok=True)
        (out / "report.html").write_text(html, encoding="utf-8")
        for table in found:
            (out / "tables" / f"{table.key}.csv").write_text(to_csv(table), encoding="utf-8")
        for figure in drawn:
            (out / "figures").mkdir(exist_ok=True)
            draw(figure, out / "figures")
    except OSError as error:
        raise RunError(f"cannot write {out}: {one_line(error)}") from error


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
