"""`python -m ppo_bench.query "select ..." DIR...`: SQL over run folders, by DuckDB.

The views are `runs` (a row for each run), `metrics` (a row for each iteration of each run) and `episodes` (a row for
each episode of each run). The latter two begin with the folder, env, backend, framework and seed of their run.
`describe metrics` lists the columns. Hyperparameters are in the column `setting` of `runs`, as in
`select setting->>'ppo.gamma', final_return_mean from runs`. `copy (select ...) to 'runs.csv'` writes a file, also as
JSON or Parquet.
"""

from __future__ import annotations

import sys
from typing import Any

from ppo_bench.commands.report.database import open_database
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError

VIEWS = "the views are runs, metrics, episodes: try 'describe runs'; hyperparameters: setting->>'ppo.gamma'"


def main(arguments: list[str]) -> int:
    """Run a query and print its rows."""
    parser = Parser("python -m ppo_bench.query", description=__doc__)
    parser.add_argument("sql", help="an SQL statement over runs, metrics and episodes")
    parser.add_argument("folders", metavar="DIR", nargs="+", help="outputs, or any folders with runs below them")
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
    numeric = {k for k in range(len(names)) if all(isinstance(row[k], int | float | None) for row in rows)}
    print(aligned([names, *([_cell(value) for value in row] for row in rows)], right=numeric))
    return 0


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "null" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
