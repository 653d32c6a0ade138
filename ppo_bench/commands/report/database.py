"""Run folders as tables and views of DuckDB, which reads their JSON lines: `runs`, `metrics`, `episodes`."""

from __future__ import annotations

import glob
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ppo_bench.commands.report.folders import Run, find, read
from ppo_bench.common.errors import ConfigError, one_line, require
from ppo_bench.common.progress import print_status
from ppo_bench.runs.results import error_of, recent_return

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SQL_TYPES = {"str": "VARCHAR", "int": "BIGINT", "bool": "BOOLEAN", "float": "DOUBLE", "dict": "JSON"}
RUN_COLUMNS = {
    each.name: SQL_TYPES[re.findall(r"\w+", str(each.type))[0]] for each in fields(Run) if each.name != "measured"
}
"""Columns and types of the table `runs`."""
INTEGERS = ("iteration", "global_step", "episodes", "env", "length")
"""Columns of JSON lines that are integers; all others are floats."""
NOT_DRAWN = (
    *("iteration", "global_step", "wall_seconds", "sps", "episodes", "episodic_return", "episodic_length"),
    *("learning_rate", "old_approx_kl", "gradient_norm", "masked_fraction"),
)
"""Columns of `metrics` without a chart under the losses."""
ALWAYS = {
    "metrics": ("iteration", "global_step", "wall_seconds", "sps", "episodes", "episodic_return"),
    "episodes": ("global_step", "env", "return", "length"),
}
"""Columns that a view of JSON lines has, even if no line has them."""


@dataclass
class Database:
    """The runs that were read, and the database with their rows."""

    connection: DuckDBPyConnection
    runs: list[Run] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Folders that are not in the database, with the reasons."""
    warnings: list[str] = field(default_factory=list)
    """What could not be read, and what the report warns of."""
    drawn: list[str] = field(default_factory=list)
    """Columns of `metrics` to draw after the returns: of evaluations and of `info` first."""

    def print_warnings(self) -> None:
        """Print the warnings."""
        for warning in self.warnings:
            print_status(f"warning: {warning}")


def open_database(folders: Sequence[str]) -> Database:
    """Read every run below `folders`. Raises `ConfigError` if there is none that can be read."""
    require("duckdb", "report", "reading run folders")
    import duckdb

    found = find(folders)
    if not found:
        raise ConfigError(f"there are no runs in {' '.join(folders)}: name a folder that outputs= named, or a run's")
    database = Database(duckdb.connect())
    for path in found:
        try:
            database.runs.append(read(path))
        except ConfigError as error:
            database.left_out[str(path)] = str(error)
    _load_iterations(database)
    _keep_one_of_each_identity(database)  # of those with rows: a run that trains again may have none yet
    _add_ambiguous_env_ids(database.runs)
    if not database.runs:
        folder, reason = next(iter(database.left_out.items()))
        raise ConfigError(f"none of {len(found)} run folders can be read; {folder}: {reason}")
    database.warnings += [f"left out: {folder}: {reason}" for folder, reason in database.left_out.items()]
    _make_tables(database)
    return database


def _keep_one_of_each_identity(database: Database) -> None:
    """Keep one run of each identity: the latest, of the finished ones if there are any."""
    kept: dict[tuple[Any, ...], Run] = {}
    for run in sorted(database.runs, key=lambda run: (run.finished, run.started, run.folder), reverse=True):
        if (other := kept.setdefault(run.identity, run)) is not run:
            reason = f"it claims to be the same run as {other.folder} (seed {other.seed}), which is kept"
            database.left_out[run.folder] = reason
    database.runs = [run for run in database.runs if kept[run.identity] is run]


def _add_ambiguous_env_ids(runs: Sequence[Run]) -> None:
    """Make the id part of the setting where one name of an environment has several on a backend, as Procgen's modes."""
    ids = {(run.env, run.backend, run.env_id) for run in runs}
    counts = Counter((env, backend) for env, backend, _ in ids)
    several = {env for (env, _), count in counts.items() if count > 1}
    for run in runs:
        if run.env in several:
            run.setting["env.id"] = run.env_id


def _create_lines_view(database: Database, name: str) -> list[str]:
    """Create a view `<name>_lines` of the runs' `<name>.jsonl` and return its columns, which are those of any line.

    A line that is not valid JSON, because it was cut, is a row without values.
    """
    files = [run.path / f"{name}.jsonl" for run in database.runs]
    paths = [glob.escape(str(path)) for path in files if path.is_file()]
    if not paths:
        return []
    keys = "select distinct unnest(json_keys(json)) as key from read_ndjson_objects(?, ignore_errors=true) order by key"
    # SQL does not distinguish capitals from small letters.
    found = [key for (key,) in database.connection.execute(keys, [paths]).fetchall()]
    columns = [*{key.lower(): key for key in [*found, *ALWAYS[name]]}.values()]
    types = {column: "BIGINT" if column in INTEGERS else "DOUBLE" for column in columns}
    database.connection.read_json(
        paths,  # type: ignore[arg-type]  # a list is documented
        columns=types,
        format="newline_delimited",
        filename=True,
        hive_partitioning=False,  # a folder that is named seed=3 is not a column
        ignore_errors=True,
    ).create_view(f"{name}_lines")
    return columns


def _load_iterations(database: Database) -> None:
    """Fill the table `steps` with the rows of all runs, and leave out the runs without any."""
    connection = database.connection
    columns = _create_lines_view(database, "metrics")
    database.drawn = [column for column in columns if column not in NOT_DRAWN]
    database.drawn.sort(key=lambda column: not column.startswith(("evaluation_", "info_")))
    summaries = {}
    if columns:
        connection.execute(
            "create table steps as select parse_dirpath(filename) as folder, * exclude filename from metrics_lines"
        )
        for folder, rows, lost, *counters in connection.execute(
            "select folder, count(iteration), count(*) - count(iteration), max(iteration), max(global_step), "
            "max(wall_seconds), median(sps), sum(episodes)::BIGINT from steps group by folder order by folder"
        ).fetchall():
            summaries[folder] = rows, *counters
            if lost:
                database.warnings.append(f"{folder}: {lost} lines of metrics.jsonl are cut or damaged and not used")
        connection.execute("delete from steps where iteration is null")
    for run in database.runs:
        rows, *counters = summaries.get(run.folder, (0,))
        if not rows:
            database.left_out[run.folder] = error_of(run.path) or "it has not finished an iteration yet"
        elif not run.finished:
            run.iterations, run.global_step, run.wall_seconds, run.steady_sps, run.episodes = counters
            try:
                run.recent_return_mean = recent_return(run.path)
            except (ConfigError, KeyError, TypeError) as error:
                database.warnings.append(f"{run.folder}: episodes.jsonl is damaged: {one_line(error)}")
    database.runs = [run for run in database.runs if run.folder not in database.left_out]


def _make_tables(database: Database) -> None:
    """Create the table `runs` and the views `metrics` and `episodes`, whose first columns name the run."""
    connection = database.connection
    connection.execute(f"create table runs ({', '.join(f'{name} {kind}' for name, kind in RUN_COLUMNS.items())})")
    rows = [
        [
            json.dumps(getattr(run, name), sort_keys=True) if kind == "JSON" else getattr(run, name)
            for name, kind in RUN_COLUMNS.items()
        ]
        for run in database.runs
    ]
    connection.executemany(f"insert into runs values ({', '.join('?' * len(RUN_COLUMNS))})", rows)
    # Compilation, which varies between seeds, is left out of the seconds of training: that of a resumption in the rows
    # after it. In an unfinished run it is the excess of the first iteration over the median one.
    connection.execute("alter table steps add column training_seconds DOUBLE")
    connection.execute(
        """update steps set training_seconds = greatest(0, wall_seconds - greatest(seconds, 0) + coalesce((
            select sum(value::DOUBLE) from runs, json_each(recompile_seconds)
            where runs.folder = steps.folder and key::BIGINT >= iteration), 0)) from (
            select folder, if(any_value(finished), any_value(compile_seconds), min(steps.wall_seconds) - any_value(
            (setting->>'ppo.num_envs')::BIGINT * (setting->>'ppo.num_steps')::BIGINT) / median(sps)) as seconds
            from steps join runs using (folder) group by folder) as compiled
        where compiled.folder = steps.folder"""
    )
    connection.execute(
        """create view metrics as
        select folder, runs.env, runs.backend, runs.framework, runs.seed, steps.* exclude folder
        from steps join runs using (folder)"""
    )
    if _create_lines_view(database, "episodes"):
        connection.execute(
            # `env` of an episode is the index of the environment, and `env` of a run is its name.
            """create view episodes as
            select folder, runs.env, backend, framework, seed, lines.* exclude (filename) rename (env as env_index)
            from episodes_lines as lines join runs on folder = parse_dirpath(filename)
            where lines.global_step is not null"""
        )
