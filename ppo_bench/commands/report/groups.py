"""Grouping of runs: by task, and within a task by the way of executing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ppo_bench.commands.report.folders import Run
from ppo_bench.commands.report.statistics import Array

FRAMEWORKS = ("torch_eager", "torch_compile", "jax_xla")
"""The order of frameworks in the report; others follow by name."""
SHOWN_KEYS = 3
"""Maximum number of hyperparameters in a setting's label; see `_setting_labels`."""
UNSET = "unset"
"""The value of a hyperparameter that others have, such as a limit, in the label of a setting without it."""
OF_PROGRAMS = ("steady_sps", "mean_sps", "compile_seconds", "wall_seconds", "setup_seconds")
"""Measurements that all runs of one program (`num_seeds`, `grid`) share."""
MAX_VALUE = 16
"""Maximum number of letters of a value that labels prefer."""


@dataclass
class Group:
    """The runs of one task with one way of executing it, which differ only in their seeds: a curve or a bar."""

    task: str
    """Label of the task: the environment, and hyperparameters that distinguish it from others of that environment."""
    algorithm: str
    """Label of the way of executing: framework, and backend and options where these differ."""
    framework: str
    """Framework and options, without the backend."""
    backend: str
    runs: list[Run]
    numbers: list[int] = field(default_factory=list)
    """Numbers of the runs in the database."""

    @property
    def first(self) -> Run:
        """The first of the runs, which differ only in their seeds."""
        return self.runs[0]

    @property
    def finished(self) -> list[Run]:
        """The complete runs."""
        return [run for run in self.runs if run.finished]

    def finals(self) -> dict[int, float]:
        """Final returns of the complete runs that have one, by seed, in order of the seeds."""
        found = {run.seed: run.final_return_mean for run in self.finished if run.final_return_mean is not None}
        return dict(sorted(found.items()))

    def values(self, name: str) -> Array:
        """Values of the attribute `name` of the complete runs that have it.

        Times and speeds of runs that were trained by one program count once.
        """
        found = [value for run in self.finished if (value := getattr(run, name)) is not None]
        if name in OF_PROGRAMS and "runs_at_once" in self.first.execution:
            found = list(dict.fromkeys(found))  # durations of two programs are never equal to the last digit
        return np.array(found, dtype=np.float64)


@dataclass
class ComparedTask:
    """An environment with its hyperparameters, and a group for each way of executing it."""

    label: str
    env: str
    env_id: str
    groups: list[Group]


def sort_runs(runs: Sequence[Run]) -> list[ComparedTask]:
    """The tasks of all runs, sorted by environment, and their groups, sorted by framework."""
    # Labels name the backend only if a task has several.
    backends = len({(run.setting_key, run.backend) for run in runs}) > len({run.setting_key for run in runs})
    settings = _setting_labels(runs)
    options = _option_labels(runs)
    numbered = sorted(enumerate(runs), key=lambda pair: _order(pair[1], settings))
    tasks: dict[tuple[str, str], ComparedTask] = {}
    for number, run in numbered:
        label = run.env + settings[run.setting_key]
        framework = run.framework + options[number]
        algorithm = f"{framework} · {run.backend}" if backends else framework
        task = tasks.setdefault((run.env, run.setting_key), ComparedTask(label, run.env, run.env_id, []))
        group = next((g for g in task.groups if g.algorithm == algorithm), None)
        if group is None:
            group = Group(label, algorithm, framework, run.backend, [])
            task.groups.append(group)
        group.runs.append(run)
        group.numbers.append(number)
    return list(tasks.values())


@dataclass
class Panel:
    """Groups that share a chart."""

    title: str
    groups: list[Group]
    names: list[str]
    """Names of the groups, with their settings if the panel has several."""


def panels(tasks: Sequence[ComparedTask]) -> list[Panel]:
    """A panel for each task with several groups, and one for all other tasks of an environment together."""
    made = []
    for env in dict.fromkeys(task.env for task in tasks):
        own = [task for task in tasks if task.env == env]
        alone = [task for task in own if len(task.groups) == 1]
        together = alone if len(alone) > 1 else []
        made += [
            Panel(task.label, task.groups, [group.algorithm for group in task.groups])
            for task in own
            if task not in together
        ]
        if together:
            groups = [task.groups[0] for task in together]
            names = [group.task.removeprefix(env).strip() for group in groups]
            if len({group.algorithm for group in groups}) > 1:
                names = [f"{group.algorithm} · {name}" for group, name in zip(groups, names, strict=True)]
            made.append(Panel(env if len(together) == len(own) else f"{env}, others", groups, names))
    return made


def algorithms(tasks: Iterable[ComparedTask]) -> list[str]:
    """Labels of all ways of executing, in the report's order."""
    groups = [group for task in tasks for group in task.groups]
    ordered = sorted(groups, key=lambda group: (rank(group.first.framework), group.backend, group.framework))
    return list(dict.fromkeys(group.algorithm for group in ordered))


def baseline_of(group: Group, task: ComparedTask, baseline: str) -> Group | None:
    """The group with which `group` is compared: one of the baseline framework, on the same backend if there is one."""
    candidates = [other for other in task.groups if other.first.framework == baseline]

    def distance(other: Group) -> tuple[bool, int]:
        keys = differing([group.first.execution, other.first.execution])
        return other.backend != group.backend, sum(not key.startswith("framework.") for key in keys)

    return min(candidates, key=distance, default=None)


def rank(framework: str) -> tuple[int, str]:
    """The place of a framework in the report's order."""
    return (FRAMEWORKS.index(framework) if framework in FRAMEWORKS else len(FRAMEWORKS), framework)


def _order(run: Run, settings: Mapping[str, str]) -> tuple[Any, ...]:
    return run.env, settings[run.setting_key], rank(run.framework), run.backend, str(run.execution), run.seed


def _setting_labels(runs: Sequence[Run]) -> dict[str, str]:
    """A label for each setting: the values that distinguish it from others of its environment; empty if it is the only
    one.

    Where these are more than `SHOWN_KEYS`, it has those that few settings share, or a digest if they are too many, too.
    """
    labels = {}
    for env in {run.env for run in runs}:
        settings = {run.setting_key: run.setting for run in runs if run.env == env}
        keys = telling_keys(list(settings.values()))
        usual = {name: Counter(str(s.get(name)) for s in settings.values()).most_common(1)[0][0] for name in keys}
        few = len(keys) <= SHOWN_KEYS
        for key, setting in settings.items():
            # A key of few that is unset, such as a limit that others have, tells by its absence.
            shown = [name for name in keys if (name in setting if few else str(setting.get(name)) != usual[name])]
            told = " ".join(f"{name}={said(setting, name)}" for name in shown)
            if len(shown) > SHOWN_KEYS:
                told = f"({key})"
            elif not told and len(settings) > 1:
                told = "(the usual)"
            labels[key] = f" {told}" if told else ""
    return labels


def said(setting: Mapping[str, Any], name: str) -> str:
    """The value of a hyperparameter as labels have it."""
    value = setting.get(name, UNSET)
    return "null" if value is None else str(value)


def telling_keys(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys that suffice to distinguish all settings, chosen greedily with short values first."""

    def length(key: str) -> int:
        return max(len(str(setting.get(key))) for setting in settings)

    def looks(keys: Sequence[str]) -> int:
        return len({tuple(str(setting.get(key)) for key in keys) for setting in settings})

    keys: list[str] = []
    for key in sorted(differing(settings), key=lambda key: length(key) > MAX_VALUE):
        if looks([*keys, key]) > looks(keys):
            keys.append(key)
    return keys


def _option_labels(runs: Sequence[Run]) -> dict[int, str]:
    """A label for each run: the execution options in which runs of its framework and backend differ."""
    labels = {}
    for pair in {(run.framework, run.backend) for run in runs}:
        members = {number: run for number, run in enumerate(runs) if (run.framework, run.backend) == pair}
        keys = differing([run.execution for run in members.values()])
        for number, run in members.items():
            words = [f"{key.rpartition('.')[2]}={run.execution[key]}" for key in keys if key in run.execution]
            labels[number] = "".join(f" {word}" for word in words)
    return labels


def differing(trees: Iterable[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not equal in all `trees`, which are dictionaries with dotted keys."""
    trees = list(trees)
    keys = dict.fromkeys(key for tree in trees for key in tree)
    return [key for key in keys if len({str(tree.get(key)) for tree in trees}) > 1]
