"""`python -m ppo_bench.query "select ..." DIR...`: SQL over run folders, by DuckDB.

The views are `runs` (a row for each run), `metrics` (a row for each iteration of each run) and `episodes` (a row for
each episode of each run). The latter two begin with the folder, env, backend, framework and seed of their run.
`describe metrics` lists the columns. Hyperparameters are in the column `setting` of `runs`, as in
`select setting->>'ppo.gamma', final_return_mean from runs`.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from ppo_bench.commands.report.database import open_database
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import jsonable

FORMATS = ("table", "csv", "json")
VIEWS = "the views are runs, metrics, episodes: try 'describe runs'; hyperparameters: setting->>'ppo.gamma'"


def main(arguments: list[str]) -> int:
    """Run a query and print its rows."""
    parser = Parser("python -m ppo_bench.query", description=__doc__)
    parser.add_argument("sql", help="an SQL statement over runs, metrics and episodes")
    parser.add_argument("folders", metavar="DIR", nargs="+", help="outputs, or any folders with runs below them")
    parser.add_argument("--format", choices=FORMATS, default="table", help="json: an object per line (default table)")
    options = parser.parse_args(arguments)
    database = open_database(options.folders)
    database.print_warnings()
    import duckdb

    try:
        found = database.connection.execute(options.sql)
        if found is None:
            raise ConfigError(f"{options.sql!r} holds no statement; {VIEWS}")
        names = [column[0] for column in found.description or []]
        rows = found.fetchall()
    except duckdb.Error as error:
        raise ConfigError(f"{str(error).strip().splitlines()[0]}; {VIEWS}") from error
    if options.format == "json" and (twice := {name for name in names if names.count(name) > 1}):
        raise ConfigError(f"--format json: two columns are named {min(twice)}; rename one by `as`")
    _print(options.format, names, rows)
    return 0


def _print(form: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    elif form == "json":
        for row in rows:
            values = jsonable(dict(zip(names, row, strict=True)))
            print(json.dumps(values, default=lambda value: float(value) if isinstance(value, Decimal) else str(value)))
    else:
        cells = [list(names), *([_cell(value) for value in row] for row in rows)]
        numeric = {k for k in range(len(names)) if all(isinstance(row[k], int | float | None) for row in rows)}
        print(aligned(cells, right=numeric))


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
