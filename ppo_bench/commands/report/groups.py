"""Grouping of runs: by task, and within a task by what the report compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.statistics import Array
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.common.values import digest

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
    def algorithm(self) -> str:
        """Name of the algorithm, such as `ppo` or `rnd`."""
        return str(self.runs[0].setting.get("algorithm.name", "ppo"))

    @property
    def finished(self) -> list[Run]:
        """The complete runs."""
        return [run for run in self.runs if run.finished]

    def values(self, name: str) -> Array:
        """Values of the attribute `name` of the complete runs that have it.

        Times and speeds of runs that were trained by one program count once.
        """
        found = [value for run in self.finished if (value := getattr(run, name)) is not None]
        if name in SPEEDS and "runs_at_once" in self.runs[0].execution:
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
        """The group with which `group` is compared: named `value`, or of that framework, and most like it."""
        candidates = [other for other in self.groups if f"{other.name} ".startswith(f"{value} ")]
        return min(
            candidates,
            key=lambda other: (
                other.runs[0].backend != group.runs[0].backend,
                len(differing([group.runs[0].execution, other.runs[0].execution])),
            ),
            default=None,
        )


def sort_runs(runs: Sequence[Run], by: str = FRAMEWORK) -> list[ComparedTask]:
    """The tasks of all runs by environment, and their groups in order: of frameworks, or of the values of `by`.

    A task's label has the values that distinguish it from others of its environment. Raises `ConfigError` if the runs
    do not differ in the key `by`.
    """
    settings, names = _split(runs, by)
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
            label = " ".join([env, *(f"{key}={setting_of[code].get(key)}" for key in keys)])
            groups = [Group(label, name, sorted(own, key=lambda run: run.seed)) for name, own in groups_of.items()]
            groups.sort(key=lambda group: rank(group.name))
            tasks.append(ComparedTask(label, env, groups[0].runs[0].env_id, groups))
    return sorted(tasks, key=lambda task: (task.env, task.label))


def group_names(tasks: Iterable[ComparedTask]) -> list[str]:
    """Names of all groups, in the report's order."""
    return sorted({group.name for task in tasks for group in task.groups}, key=rank)


def rank(name: str) -> tuple[int, float, str]:
    """The place of a group in the report's order: frameworks as in `FRAMEWORKS`, numbers in theirs, others by name."""
    framework = name.partition(" ")[0]
    try:
        return (0, float(name), name)
    except ValueError:
        return (1, FRAMEWORKS.index(framework) if framework in FRAMEWORKS else len(FRAMEWORKS), name)


def _split(runs: Sequence[Run], by: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Each run's task, which is its keys without those of `by`, and its name, which is what it has for these."""

    def is_compared(run: Run, key: str) -> bool:
        return key not in run.setting if by == FRAMEWORK else key == by or key.startswith(f"{by}.")

    compared = [{key: value for key, value in run.keys.items() if is_compared(run, key)} for run in runs]
    settings = [{key: value for key, value in run.keys.items() if not is_compared(run, key)} for run in runs]
    if by == FRAMEWORK:
        # Names have an option, such as the backend, only if the runs of a task differ in it.
        of_task: dict[str, list[dict[str, Any]]] = {}
        for run, setting, own in zip(runs, settings, compared, strict=True):
            of_task.setdefault(digest({"env": run.env, **setting}), []).append(own)
        options = {key for members in of_task.values() for key in distinguishing_keys(members)} - {FRAMEWORK}
        return settings, [
            " ".join([own[FRAMEWORK], *(f"{key}={value}" for key, value in own.items() if key in options)])
            for own in compared
        ]
    keys = distinguishing_keys(compared)
    if not keys:
        others = ", ".join(sorted(differing([run.keys for run in runs]))[:8]) or "the seed"
        raise ConfigError(f"--by {by}: the runs do not differ in it; they differ in {others}")
    if len(keys) == 1:
        return settings, [str(own.get(keys[0])) for own in compared]
    return settings, [" ".join(f"{key.removeprefix(by + '.')}={own.get(key)}" for key in keys) for own in compared]


def distinguishing_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that suffice to distinguish all settings, chosen greedily with short values first."""

    def num_distinct(keys: Sequence[str]) -> int:
        return len({tuple(str(setting.get(key)) for key in keys) for setting in settings})

    keys: list[str] = []
    letters = {key: max(len(str(setting.get(key))) for setting in settings) for key in differing(settings)}
    for key in sorted(letters, key=lambda key: letters[key] > MAX_LETTERS):
        if num_distinct([*keys, key]) > num_distinct(keys):
            keys.append(key)
    return keys


def differing(trees: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not equal in all `trees`, which are dictionaries with dotted keys."""
    trees = list(trees)
    keys = dict.fromkeys(key for tree in trees for key in tree)
    return [key for key in keys if len({str(tree.get(key)) for tree in trees}) > 1]
