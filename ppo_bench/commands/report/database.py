"""Run folders as tables and views of DuckDB: `runs`, `metrics`, `episodes`.

DuckDB reads the JSON lines from the run folders. A line that is not valid JSON, because it was cut or damaged, becomes
a row without values.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.commands.report.folders import LeftOut, Run, Unreadable, find, read
from ppo_bench.commands.report.json_lines import columns_of, duckdb_error, first_line, rows_of
from ppo_bench.common.errors import ConfigError, require
from ppo_bench.runs.results import RECENT_EPISODES, error_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RUN_COLUMNS = {
    **dict.fromkeys(("folder", "name", "env", "env_id", "backend", "framework"), "VARCHAR"),
    "seed": "BIGINT",
    "finished": "BOOLEAN",
    **dict.fromkeys(("total_timesteps", "iterations", "global_step", "episodes"), "BIGINT"),
    **dict.fromkeys(("final_return_mean", "final_return_std", "recent_return_mean"), "DOUBLE"),
    **dict.fromkeys(("wall_seconds", "setup_seconds", "compile_seconds", "steady_sps", "mean_sps"), "DOUBLE"),
    "masked_fraction": "DOUBLE",
    **dict.fromkeys(("cut_episodes", "cut_steps", "resumes", "peak_memory_bytes"), "BIGINT"),
    "load_average": "DOUBLE",
    "started": "VARCHAR",
    **dict.fromkeys(("device", "precision", "cpu", "gpu", "git_commit"), "VARCHAR"),
    **dict.fromkeys(("cores", "threads"), "BIGINT"),
    **dict.fromkeys(("setting", "execution", "facts"), "JSON"),
}
"""Columns and types of the table `runs` and of runs.parquet, which have a row for each run."""
METRICS = (
    *("iteration", "global_step", "wall_seconds", "sps"),
    *(metric.name for metric in metrics_of(Ppo("ppo"))),
    *("episodes", "episodic_return", "episodic_length"),
)
"""Columns that the view `metrics` always has; it also has all other columns of the runs' rows."""
LEARNING = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance")
"""Columns of `METRICS` that are drawn; all columns beyond `METRICS` are drawn too."""
EPISODES = ("global_step", "env", "return", "length")
LIMITS: dict[str, str | bool | int | float | list[str]] = {
    "memory_limit": "1GB",
    "preserve_insertion_order": "false",
    "temp_directory": tempfile.gettempdir(),
}


@dataclass
class Database:
    """The runs that were read, and the database with their rows."""

    connection: DuckDBPyConnection
    runs: list[Run] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    drawn: list[str] = field(default_factory=list)
    """Columns of `steps` to draw besides the returns: of evaluations, then of `info`, then losses."""

    def write_parquet(self, path: Path) -> None:
        """Write a Parquet file with a row for each run."""
        quoted = str(path).replace("'", "''")
        self.connection.execute(f"copy runs to '{quoted}' (format parquet)")


def open_database(folders: Sequence[str]) -> Database:
    """Read every run below `folders`. Raises `ConfigError` if there is none that can be read."""
    require("duckdb", "report", "reading run folders")
    import duckdb

    found = find(folders)
    if not found:
        raise ConfigError(f"there are no runs in {' '.join(folders)}: name a folder that outputs= named, or a run's")
    database = Database(duckdb.connect(config=LIMITS))
    for path in found:
        try:
            database.runs.append(read(path))
        except Unreadable as error:
            database.left_out.append(LeftOut(str(path).encode(errors="backslashreplace").decode(), str(error)))
    _keep_one_of_each_identity(database)
    _tell_ids_apart(database.runs)
    _read_steps(database)
    if not database.runs:
        first = database.left_out[0]
        raise ConfigError(f"none of {len(found)} run folders can be read; {first.folder}: {first.reason}")
    _count_training_seconds(database)
    _make_views(database)
    return database


def _keep_one_of_each_identity(database: Database) -> None:
    """Keep one run of each identity: a finished one if there is one, and the latest of these."""
    claims: dict[tuple[Any, ...], list[Run]] = {}
    for run in database.runs:
        claims.setdefault(run.identity, []).append(run)
    kept = []
    for runs in claims.values():
        *others, chosen = sorted(runs, key=lambda run: (run.finished, run.started, run.folder))
        reason = f"it claims to be the same run as {chosen.folder} (seed {chosen.seed}), which is kept"
        database.left_out += [LeftOut(run.folder, reason) for run in others]
        kept.append(chosen)
    database.runs = sorted(kept, key=lambda run: str(run.path.resolve()))


def _tell_ids_apart(runs: Sequence[Run]) -> None:
    """Make the id part of the setting where one name of an environment has several on a backend, as other levels have.

    Elsewhere it is not, since an environment's ids on two backends may differ.
    """
    ids: dict[tuple[str, str], set[str]] = {}
    for run in runs:
        ids.setdefault((run.env, run.backend), set()).add(run.env_id)
    several = {env for (env, _), found in ids.items() if len(found) > 1}
    for run in runs:
        if run.env in several:
            run.setting = {**run.setting, "env.id": run.env_id}


def _read_steps(database: Database) -> None:
    """Fill the table `steps` with each run's rows of metrics.jsonl up to the first missing one, and set the counters of
    unfinished runs."""
    connection = database.connection
    connection.execute("create table files (run INTEGER, file VARCHAR)")
    present = [run for run in database.runs if (run.path / "metrics.jsonl").is_file()]
    database.left_out += [
        LeftOut(run.folder, "metrics.jsonl is missing") for run in database.runs if run not in present
    ]
    database.runs = present
    own = columns_of([run.path / "metrics.jsonl" for run in present], METRICS)[len(METRICS) :]
    first = [name for start in ("evaluation_", "info_") for name in own if name.startswith(start)]
    database.drawn = [*first, *(name for name in own if name not in first), *LEARNING]
    drawn = "".join(f', "{name}" DOUBLE' for name in database.drawn)
    connection.execute(
        "create table steps (run INTEGER, iteration BIGINT, global_step BIGINT, wall_seconds DOUBLE, sps DOUBLE, "
        f"episodes BIGINT, episodic_return DOUBLE{drawn})"
    )
    if not present:
        return
    files = [(number, str(run.path / "metrics.jsonl")) for number, run in enumerate(present)]
    connection.executemany("insert into files values (?, ?)", files)
    columns = ("iteration", "global_step", "wall_seconds", "sps", "episodes", "episodic_return", *database.drawn)
    damaged: dict[int, str] = {}
    try:
        _insert_steps(connection, [run.path for run in present], columns)
    except duckdb_error():
        # Read file by file, so that one that DuckDB cannot read does not exclude the others.
        connection.execute("delete from steps")
        for number, run in enumerate(present):
            try:
                _insert_steps(connection, [run.path], columns)
            except duckdb_error() as error:
                damaged[number] = f"metrics.jsonl: {first_line(error)}"
    _cut(database, damaged)


def _insert_steps(connection: DuckDBPyConnection, folders: Sequence[Path], columns: Sequence[str]) -> None:
    rows = rows_of([folder / "metrics.jsonl" for folder in folders], columns)
    named = ", ".join(f'"{name}"' for name in columns)
    connection.execute(f"insert into steps select run, {named} from {rows} join files using (file)")


def _cut(database: Database, damaged: Mapping[int, str]) -> None:
    """Truncate each run at its first missing iteration, warn where rows were lost, and leave out runs without rows."""
    connection = database.connection
    connection.execute(
        """create table cuts as
        with ordered as (
            select run, iteration, iteration - row_number() over (partition by run order by iteration) as gap
            from steps where iteration is not null and global_step is not null and wall_seconds is not null)
        select run, max(iteration) as last, count(*) as used from ordered
        where gap = (select min(gap) from ordered as same where same.run = ordered.run) group by run"""
    )
    counts = connection.execute(
        "select run, count(*) - coalesce(any_value(used), 0), any_value(last) "
        "from steps left join cuts using (run) group by run order by run"
    ).fetchall()
    connection.execute("delete from steps using cuts where steps.run = cuts.run and iteration > cuts.last")
    connection.execute("delete from steps where iteration is null or global_step is null or wall_seconds is null")
    lost = {run: (rows, last) for run, rows, last in counts}
    for number, run in enumerate(database.runs):
        rows, last = lost.get(number, (0, None))
        if last is None:
            none = error_of(run.path) or "it has not finished an iteration yet"
            reason = "metrics.jsonl has no row that can be read" if rows else none
            database.left_out.append(LeftOut(run.folder, damaged.get(number, reason)))
        elif rows:
            database.warnings.append(
                f"{run.folder}: metrics.jsonl is cut or damaged after iteration {last}; it is used up to there"
            )
    _sum_up(database, {number for number in range(len(database.runs)) if lost.get(number, (0, None))[1] is not None})


def _sum_up(database: Database, readable: set[int]) -> None:
    """Set the counters of unfinished runs from their rows, and renumber the `readable` runs."""
    connection = database.connection
    unfinished = {number: run for number, run in enumerate(database.runs) if number in readable and not run.finished}
    for number, rows, iterations, global_step, wall_seconds, sps, episodes in connection.execute(
        "select run, count(*), max(iteration), max(global_step), max(wall_seconds), median(sps), "
        "sum(episodes)::BIGINT from steps group by run"
    ).fetchall():
        if run := unfinished.get(number):
            run.iterations, run.global_step, run.wall_seconds = iterations, global_step, wall_seconds
            run.steady_sps, run.episodes = sps, episodes
            own_steps = rows * run.setting["ppo.num_envs"] * run.setting["ppo.num_steps"]
            run.mean_sps = own_steps / wall_seconds if wall_seconds else None
    with_episodes = {n: run for n, run in unfinished.items() if (run.path / "episodes.jsonl").is_file()}
    if with_episodes:
        rows = rows_of([run.path / "episodes.jsonl" for run in with_episodes.values()], ("global_step", "return"))
        recent = dict(
            connection.execute(
                f"""select file, avg("return") from (select *, row_number() over (
                partition by file order by global_step desc) as age from {rows} where "return" is not null)
                where age <= {RECENT_EPISODES} group by file"""
            ).fetchall()
        )
        for run in with_episodes.values():
            run.recent_return_mean = recent.get(str(run.path / "episodes.jsonl"))
    stay = sorted(readable)
    if len(stay) not in (0, len(database.runs)):
        connection.execute("create table numbers (run INTEGER, number INTEGER)")
        connection.executemany("insert into numbers values (?, ?)", [(old, new) for new, old in enumerate(stay)])
        connection.execute("update steps set run = number from numbers where numbers.run = steps.run")
    database.runs = [database.runs[number] for number in stay]


def _count_training_seconds(database: Database) -> None:
    """Add the column `training_seconds` to `steps`: wall time without compilation, which varies between seeds.

    The compilation time of an unfinished run is estimated as the excess of its first iteration over the median one.
    """
    connection = database.connection
    connection.execute("alter table steps add column training_seconds DOUBLE")
    connection.execute("create temp table compilations (run INTEGER, seconds DOUBLE, batch BIGINT)")
    known = [
        (
            number,
            (run.compile_seconds or 0.0) if run.finished else None,
            run.setting["ppo.num_envs"] * run.setting["ppo.num_steps"],
        )
        for number, run in enumerate(database.runs)
    ]
    connection.executemany("insert into compilations values (?, ?, ?)", known)
    connection.execute(
        """with compiled as (
            select run, coalesce(any_value(seconds), min(wall_seconds) - any_value(batch) / median(sps)) as seconds
            from steps left join compilations using (run) group by run)
        update steps set training_seconds = wall_seconds - greatest(coalesce(compiled.seconds, 0), 0)
        from compiled where compiled.run = steps.run"""
    )


def _make_views(database: Database) -> None:
    """Create the table `runs` and the views `metrics` and `episodes`, whose first columns name the run."""
    connection = database.connection
    columns = ", ".join(f"{name} {kind}" for name, kind in RUN_COLUMNS.items())
    connection.execute(f"create table runs ({columns})")
    marks = ", ".join("?" * len(RUN_COLUMNS))
    connection.executemany(f"insert into runs values ({marks})", [_row(run) for run in database.runs])
    about = "folder, runs.env, backend, framework, seed"
    for view, known in (("metrics", METRICS), ("episodes", EPISODES)):
        files = [run.path / f"{view}.jsonl" for run in database.runs if (run.path / f"{view}.jsonl").is_file()]
        names = columns_of(files, known)
        # Renamed, since `env` of an episode is the index of the environment, and `env` of a run is its name.
        shown = ", ".join("x.env as env_index" if name == "env" else f'x."{name}"' for name in names)
        rows = (
            rows_of(files, names)
            if files
            else "(select null as file, " + ", ".join(f'null as "{n}"' for n in names) + " limit 0)"
        )
        connection.execute(
            f"create view {view} as select {about}, {shown} from {rows} as x "
            f"join runs on x.file = runs.folder || '/{view}.jsonl' where x.global_step is not null"
        )


def _row(run: Run) -> list[Any]:
    facts = run.facts
    values = vars(run) | {
        "device": facts.get("execution.device"),
        "precision": run.execution.get("precision"),
        "cpu": facts.get("hardware.cpu"),
        "gpu": facts.get("execution.gpu") or facts.get("hardware.gpu"),  # the latter is the machine's first GPU
        "git_commit": facts.get("git_commit"),
        "cores": facts.get("hardware.cores"),
        "threads": facts.get("execution.threads"),
    }
    texts = {key: json.dumps(values[key], sort_keys=True) for key in ("setting", "execution", "facts")}
    return [(values | texts)[name] for name in RUN_COLUMNS]
