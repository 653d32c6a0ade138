"""Settings of hyperparameters, or algorithms, compared over several environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ppo_bench.commands.report.analysis import normalise, scale_of_tasks
from ppo_bench.commands.report.groups import ComparedTask, algorithms, differing, said, telling_keys
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.ranking import played
from ppo_bench.commands.report.statistics import Array, Estimate, bootstrap, iqm, probability_of_improvement
from ppo_bench.commands.report.table import Table

NOTE = (
    "Settings that were trained on the same environments, by the interquartile mean of their normalised scores, and "
    "the probability that one of their runs ends above one of the first's (Agarwal et al. 2021), both with 95% "
    "intervals by the bootstrap, stratified by environment. They are not corrected for the choice of the first."
)
COLUMNS = ("algorithm", "setting", "envs", "runs", "score, IQM", "above the first")

Finals = dict[str, Array]
"""Final returns by environment."""


class Overall(NamedTuple):
    """One of several settings, executed in one way, over all environments on which each of them was trained."""

    algorithm: str
    """Label of the way of executing."""
    setting: str
    """The hyperparameters that distinguish it from the others."""
    envs: int
    runs: int
    score: Estimate
    """Interquartile mean of the normalised scores."""
    above: Estimate | None
    """Probability that a run ends above one of the first setting; None for the first."""


def overall(tasks: Sequence[ComparedTask], options: Options) -> list[list[Overall]]:
    """Settings over several environments, best first, for each way of executing that has several of both."""
    found = []
    for algorithm in algorithms(tasks):
        scores = _scores(tasks, algorithm)
        if len(scores) > 1 and len(next(iter(scores.values()))) > 1:
            found.append(_ranked(algorithm, scores, options))
    return found


def over_envs(found: Sequence[Sequence[Overall]]) -> Table:
    """A table of the settings over environments that `overall` found."""
    rows = [row for rows in found for row in rows]
    return Table("settings_over_envs", "Settings over environments", COLUMNS, rows, NOTE)


def _ranked(algorithm: str, scores: dict[str, Finals], options: Options) -> list[Overall]:
    runs = {setting: list(own.values()) for setting, own in scores.items()}
    estimates = {setting: bootstrap(iqm, own, **options.resampling) for setting, own in runs.items()}
    first, *others = sorted(runs, key=lambda setting: -estimates[setting].point)
    above: dict[str, Estimate | None] = {first: None}
    for setting in others:
        above[setting] = bootstrap(probability_of_improvement, runs[setting], runs[first], **options.resampling)
    return [
        Overall(
            algorithm, setting, len(runs[setting]), sum(map(len, runs[setting])), estimates[setting], above[setting]
        )
        for setting in (first, *others)
    ]


def _scores(tasks: Sequence[ComparedTask], algorithm: str) -> dict[str, Finals]:
    """Normalised scores of each setting by environment, of the settings that several environments share.

    Settings are the same if they agree in all keys that vary within an environment. Environments that lack one of them
    are left out, as are those whose versions or options differ.
    """
    of_env = {env: [task for task in tasks if task.env == env] for env in dict.fromkeys(task.env for task in tasks)}
    of_env = {env: own for env, own in of_env.items() if len(own) > 1 and len({played(task) for task in own}) == 1}
    varied = dict.fromkeys(key for own in of_env.values() for key in differing(map(_setting, own)))
    found: dict[tuple[str, ...], dict[str, Array]] = {}
    settings: dict[tuple[str, ...], dict[str, Any]] = {}
    for env, own in of_env.items():
        scale = scale_of_tasks(own)
        pairs = [(task, group) for task in own for group in task.groups if group.algorithm == algorithm]
        for task, group in pairs:
            finals = group.values("final_return_mean")
            if scale and len(finals):
                setting = _setting(task)
                key = tuple(said(setting, name) for name in varied)
                settings[key] = setting
                found.setdefault(key, {})[env] = normalise(finals, scale)
    shared = [key for key, scores in found.items() if len(scores) > 1]
    envs = [env for env in of_env if all(env in found[key] for key in shared)]
    telling = telling_keys([settings[key] for key in shared])
    return {
        " ".join(f"{name}={said(settings[key], name)}" for name in telling): {env: found[key][env] for env in envs}
        for key in shared
    }


def _setting(task: ComparedTask) -> dict[str, Any]:
    return task.groups[0].first.setting
