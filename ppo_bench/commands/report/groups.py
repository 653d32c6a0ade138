"""Grouping of runs: by task, and within a task by what the report compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.statistics import Array
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import digest

FRAMEWORKS = ("torch_eager", "torch_compile", "jax_xla")
"""The order of frameworks in the report; others follow by name."""
FRAMEWORK = "framework"
"""What groups of a task differ in by default: framework, backend and their options."""
MAX_LETTERS = 16
"""Maximum number of letters of a value that labels prefer."""
SPEEDS = ("steady_sps", "mean_sps", "compile_seconds", "wall_seconds", "setup_seconds")
"""Measurements of speed, which all runs of one program (`num_seeds`, `grid`) share."""


@dataclass
class Group:
    """Runs of one task that differ only in their seeds: a curve or a bar."""

    task: str
    """Label of the task."""
    name: str
    """The value of what is compared: framework, with backend and options where these differ, or that of `--by`."""
    runs: list[Run]

    @property
    def first(self) -> Run:
        """The first of the runs."""
        return self.runs[0]

    @property
    def algorithm(self) -> str:
        """Name of the algorithm, such as `ppo` or `rnd`."""
        return str(self.first.setting.get("algorithm.name", "ppo"))

    @property
    def finished(self) -> list[Run]:
        """The complete runs."""
        return [run for run in self.runs if run.finished]

    def final_returns(self) -> dict[int, float]:
        """Final returns of the complete runs that have one, by seed, in order of the seeds."""
        found = {run.seed: run.final_return_mean for run in self.finished if run.final_return_mean is not None}
        return dict(sorted(found.items()))

    def values(self, name: str) -> Array:
        """Values of the attribute `name` of the complete runs that have it.

        Times and speeds of runs that were trained by one program count once.
        """
        found = [value for run in self.finished if (value := getattr(run, name)) is not None]
        if name in SPEEDS and "runs_at_once" in self.first.execution:
            found = list(dict.fromkeys(found))  # durations of two programs are never equal to the last digit
        return np.array(found, dtype=np.float64)


@dataclass
class ComparedTask:
    """An environment with its hyperparameters, and the groups that are compared on it."""

    label: str
    env: str
    env_id: str
    groups: list[Group]

    def baseline(self, group: Group, value: str) -> Group | None:
        """The group of the baseline `value` with which `group` is compared: on the same backend if there is one."""

        def distance(other: Group) -> tuple[bool, int]:
            keys = differing([group.first.execution, other.first.execution])
            return other.first.backend != group.first.backend, sum(not key.startswith("framework.") for key in keys)

        candidates = [other for other in self.groups if value in (other.name, other.first.framework)]
        return min(candidates, key=distance, default=None)


def sort_runs(runs: Sequence[Run], by: str = FRAMEWORK) -> list[ComparedTask]:
    """The tasks of all runs by environment, and their groups in order: of frameworks, or of the values of `by`.

    A task's label has the values that distinguish it from others of its environment. Raises `ConfigError` if the runs
    do not differ in the key `by`.
    """
    if by == FRAMEWORK:
        settings, names = [run.setting for run in runs], _frameworks(runs)
    else:
        settings, names = _split([run.keys for run in runs], by)
    members: dict[str, dict[str, dict[str, list[Run]]]] = {}
    setting_of = {}
    for run, setting, name in zip(runs, settings, names, strict=True):
        code = digest(setting)
        setting_of[code] = setting
        members.setdefault(run.env, {}).setdefault(code, {}).setdefault(name, []).append(run)
    tasks = []
    for env, codes in members.items():
        keys = distinguishing_keys([setting_of[code] for code in codes])
        for code, groups_of in codes.items():
            label = " ".join([env, *(f"{key}={value_text(setting_of[code], key)}" for key in keys)])
            groups = [Group(label, name, own) for name, own in groups_of.items()]
            groups.sort(key=lambda group: rank(group.name, group.first))
            tasks.append(ComparedTask(label, env, groups[0].first.env_id, groups))
    return sorted(tasks, key=lambda task: (task.env, task.label))


def group_names(tasks: Iterable[ComparedTask]) -> list[str]:
    """Names of all groups, in the report's order."""
    groups = [group for task in tasks for group in task.groups]
    return list(dict.fromkeys(group.name for group in sorted(groups, key=lambda each: rank(each.name, each.first))))


def rank(name: str, run: Run | None = None) -> tuple[int, float, str, str]:
    """The place of a group in the report's order: frameworks as in `FRAMEWORKS`, numbers in theirs, others by name."""
    framework = run.framework if run and name.startswith(run.framework) else name
    try:
        return (0, float(name), "", "")
    except ValueError:
        place = FRAMEWORKS.index(framework) if framework in FRAMEWORKS else len(FRAMEWORKS)
        return (1, place, run.backend if run and name.startswith(run.framework) else "", name)


def _frameworks(runs: Sequence[Run]) -> list[str]:
    """The way of executing each run: framework, and the backend and the options in which others differ."""
    # Names have the backend only if a task has several.
    backends = len({(run.setting_key, run.backend) for run in runs}) > len({run.setting_key for run in runs})
    executions: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for run in runs:
        executions.setdefault((run.framework, run.backend), []).append(run.execution)
    keys = {pair: differing(trees) for pair, trees in executions.items()}
    names = []
    for run in runs:
        own = [key for key in keys[run.framework, run.backend] if key in run.execution]
        options = [f"{key.rpartition('.')[2]}={run.execution[key]}" for key in own]
        names.append(" ".join([run.framework, *options]) + (f" · {run.backend}" if backends else ""))
    return names


def _split(trees: Sequence[Mapping[str, Any]], by: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Each run's keys without `by` and what is below it, and the values of these in which runs differ."""
    owned = {key for tree in trees for key in tree if key == by or key.startswith(f"{by}.")}
    keys = distinguishing_keys([{key: value for key, value in tree.items() if key in owned} for tree in trees])
    if not keys:
        others = ", ".join(sorted(differing(trees))[:8]) or "the seed"
        raise ConfigError(f"--by {by}: the runs do not differ in it; they differ in {others}")
    rest = [{key: value for key, value in tree.items() if key not in owned} for tree in trees]
    if len(keys) == 1:
        return rest, [value_text(tree, keys[0]) for tree in trees]
    return rest, [" ".join(f"{key.removeprefix(by + '.')}={value_text(tree, key)}" for key in keys) for tree in trees]


def value_text(setting: Mapping[str, Any], key: str) -> str:
    """The value of a hyperparameter as labels have it."""
    value = setting.get(key, "unset")
    return "null" if value is None else str(value)


def distinguishing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that suffice to distinguish all settings, chosen greedily with short values first."""

    def letters(key: str) -> int:
        return max(len(str(setting.get(key))) for setting in settings)

    def num_distinct(keys: Sequence[str]) -> int:
        return len({tuple(str(setting.get(key)) for key in keys) for setting in settings})

    keys: list[str] = []
    for key in sorted(differing(settings), key=lambda key: letters(key) > MAX_LETTERS):
        if num_distinct([*keys, key]) > num_distinct(keys):
            keys.append(key)
    return keys


def differing(trees: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not equal in all `trees`, which are dictionaries with dotted keys."""
    trees = list(trees)
    keys = dict.fromkeys(key for tree in trees for key in tree)
    return [key for key in keys if len({str(tree.get(key)) for tree in trees}) > 1]
