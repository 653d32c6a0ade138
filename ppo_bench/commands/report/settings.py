"""Tables of the hyperparameters and of the runs with their hardware and versions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.groups import ComparedTask, differing
from ppo_bench.commands.report.table import Table


def settings(tasks: Sequence[ComparedTask]) -> list[Table]:
    """Two tables: a row for each task with the hyperparameters in which tasks differ, and those that all share."""
    of = {task.label: task.groups[0].first.setting for task in tasks}
    keys = differing(of.values())
    rows = [(task.label, task.env_id, *(_said(of[task.label], key) for key in keys)) for task in tasks]
    shared = {key: value for setting in of.values() for key, value in setting.items() if key not in keys}
    note = "Hyperparameters of the training; how it was executed is in the tables of runs."
    return [
        Table("settings", "What differs", ("env", "id", *keys), rows, note),
        Table(
            "settings_same",
            "The same for all tasks",
            ("what", "value"),
            [(k, json.dumps(v)) for k, v in shared.items()],
        ),
    ]


def _said(setting: Mapping[str, Any], key: str) -> str:
    return json.dumps(setting[key]) if key in setting else ""


def every_run(runs: Sequence[Run]) -> Table:
    """A table with a row for each run, including the facts in which runs differ."""
    keys = differing([run.facts for run in runs])
    own = sorted({name for run in runs for name in run.measured})
    rows = [
        (
            run.folder, run.env, run.backend, run.framework, run.seed, "finished" if run.finished else "unfinished",
            run.global_step, run.recent_return_mean, run.steady_sps, run.mean_sps, run.compile_seconds,
            run.wall_seconds, run.resumes, run.cut_episodes, run.cut_fraction,
            *(run.measured.get(name) for name in own),
            *(_fact(run, key) for key in keys),
        )
        for run in runs
    ]  # fmt: skip
    columns = (
        *("folder", "env", "backend", "framework", "seed", "state", "steps", "return"),
        *(
            "steady steps/s",
            "mean steps/s",
            "compilation (s)",
            "training (s)",
            "resumes",
            "cut episodes",
            "cut steps (fraction)",
            *own,
            *keys,
        ),
    )
    return Table("runs", "Every run", columns, rows, "The last columns are the facts in which runs differ.")


def same(runs: Sequence[Run]) -> Table:
    """A table with a row for each fact that all runs share."""
    apart = set(differing([run.facts for run in runs]))
    facts = {key: value for run in runs for key, value in run.facts.items() if key not in apart}
    rows = [(key, "none" if value is None else str(value)) for key, value in facts.items()]
    return Table("same", "The same for all runs", ("what", "value"), rows)


def _fact(run: Run, key: str) -> str:
    value = run.facts.get(key, "")
    return "none" if value is None else str(value)
