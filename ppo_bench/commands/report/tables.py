"""The tables of the report."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ppo_bench.commands.report.analysis import ALL, MEANS, Aggregate, Analysis
from ppo_bench.commands.report.folders import LeftOut, Run
from ppo_bench.commands.report.groups import differing
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.statistics import Estimate
from ppo_bench.commands.report.table import Table, cell


def tables(analysis: Analysis, options: Options, runs: Sequence[Run], left_out: Sequence[LeftOut]) -> list[Table]:
    """All tables that have rows; `summary` and `aggregate` are always included."""
    about = ("env", "algorithm", options.by)
    made = [
        summary(analysis, options),
        Table("aggregate", "All aggregates", (*about, *Aggregate._fields[3:]), list(analysis.aggregates.values())),
        _returns(analysis, about),
        _speed(analysis, about, options),
        _equivalence(analysis, about, options),
        _improvement(analysis, options),
        _over_tasks(analysis, options),
        _references(analysis, about),
        _settings(analysis),
        _runs(runs),
        _same(runs),
        Table("left_out", "Left out", ("folder", "reason"), [(each.folder, each.reason) for each in left_out]),
    ]
    return [table for table in made if table.rows or table.key in ("summary", "aggregate")]


def summary(analysis: Analysis, options: Options) -> Table:
    """A row for each group: how well it learns, how fast it is, and how it compares with the baseline."""
    rows = []
    for task in analysis.tasks:
        for group in task.groups:
            pair = analysis.pair(group)
            rows.append(
                (
                    *(task.label, group.algorithm, group.name, len(group.finished)),
                    analysis.estimate(task.label, group.name, "final_return_mean"),
                    analysis.estimate(task.label, group.name, "steady_sps"),
                    pair.speedup if pair else None,
                    pair.returns.verdict if pair and pair.returns else "",
                )
            )
    columns = ("env", "algorithm", options.by, "seeds", "final return", "steps/s", "speed-up", "return")
    note = (
        f"Means over finished seeds with 95% intervals; speed-up and equivalence of the return are over "
        f"{options.baseline}, within {options.margin_in_words}. Undecided: too few seeds to tell."
    )
    return Table("summary", "Summary", columns, rows, note)


def _returns(analysis: Analysis, about: Sequence[str]) -> Table:
    rows = []
    for task in analysis.tasks:
        scale = analysis.scales.get(task.label)
        between = f"{cell(scale.low)} ({scale.low_is}) to {cell(scale.high)} ({scale.high_is})" if scale else ""
        score = "human_normalised_score" if scale and scale.high_is == "human" else "normalised_score"
        metrics = ("final_return_mean", "final_return_median", "final_return_iqm", score, "optimality_gap")
        for group in task.groups:
            found = [analysis.estimate(task.label, group.name, metric) for metric in metrics]
            if found[0]:
                row = (task.label, group.algorithm, group.name, len(group.finals()), *found, between)
                rows.append((task.env, -found[0].point, row))
    columns = (*about, "seeds", "mean", "median", "IQM", "score", "optimality gap", "scores from 0 to 1 are")
    note = (
        "Best first: of many settings one leads by chance. Mean return of the last 100 training episodes of each seed; "
        "95% intervals over seeds, Student's for means, by the bootstrap for median, IQM and optimality gap, which is "
        "how far scores stay below 1."
    )
    best_first = [row for *_, row in sorted(rows, key=lambda each: each[:2])]
    return Table("returns", "Final returns", columns, best_first, note)


def _speed(analysis: Analysis, about: Sequence[str], options: Options) -> Table:
    metrics = (*MEANS, "speedup_steady_sps", "speedup_wall_time")
    rows = []
    for task in analysis.tasks:
        for group in task.groups:
            if steady := analysis.aggregates.get((task.label, group.name, "steady_sps")):
                cells = [analysis.estimate(task.label, group.name, metric) for metric in metrics]
                rows.append((task.label, group.algorithm, group.name, steady.seeds, *cells))
    columns = (
        *(*about, "seeds", "steady speed (steps/s)", "mean speed (steps/s)", "compilation (s)", "training (s)"),
        *("set-up (s)", "speed-up", "speed-up of training time"),
    )
    note = (
        "Means over seeds with Student's 95% intervals. Steady speed is that of a run's median iteration, mean speed "
        "its steps over its training time less compilation, which is what the first iterations took beyond median "
        f"ones. Speed-ups are over {options.baseline}."
    )
    return Table("speed", "Speeds and times", columns, rows, note)


def _equivalence(analysis: Analysis, about: Sequence[str], options: Options) -> Table:
    rows = [
        (
            *(pair.task.label, pair.group.algorithm, pair.group.name, pair.baseline.name),
            Estimate(found.difference, found.low, found.high),
            *(found.margin, "paired" if pair.paired else "Welch", found.p_equivalent, found.p_different),
            found.verdict,
        )
        for pair in analysis.pairs
        if (found := pair.returns)
    ]
    columns = (
        *(*about, "compared with", "difference [90%]", "margin", "test"),
        *("p of equivalence", "p of difference", "verdict"),
    )
    note = (
        "Two one-sided t-tests (TOST) of mean final returns at 5%, of pairs with the same seed and noise, or Welch's "
        f"where seeds or backends differ. The margin is {options.margin_in_words}."
    )
    return Table("equivalence", "Tests of equivalence", columns, rows, note)


def _improvement(analysis: Analysis, options: Options) -> Table:
    note = "The chance that a run of the first ends with a higher return than one of the second; a tie counts half."
    columns = ("env", options.by, "over", "probability")
    return Table("improvement", "Probability of improvement", columns, analysis.improvements, note)


def _over_tasks(analysis: Analysis, options: Options) -> Table:
    rows = []
    for scores in ("normalised_score", "human_normalised_score"):
        metrics = (f"{scores}_median", f"{scores}_iqm", f"{scores}_mean", "optimality_gap")
        for name in analysis.names:
            if found := analysis.aggregates.get((ALL, name, metrics[0])):
                estimates = [analysis.estimate(ALL, name, metric) for metric in metrics]
                rows.append((scores.replace("_", " "), found.algorithm, name, found.seeds, *estimates))
    shared = ", ".join(task.label for task in analysis.shared)
    note = (
        f"Over the environments that all have finished and that have a scale: {shared}. The bootstrap is stratified by "
        "environment; human-normalised scores are only over Atari."
    )
    columns = ("scores", "algorithm", options.by, "seeds", "median", "IQM", "mean", "optimality gap")
    return Table("over_envs", "Over all environments", columns, rows, note)


def _references(analysis: Analysis, about: Sequence[str]) -> Table:
    rows = []
    for group, ours, sps, reference, low, high, comparison in analysis.references:
        own = f"{cell(ours.mean)} ± {cell(ours.std) or '?'} ({ours.n})" if ours else ""
        theirs = f"{cell(reference.mean)} ± {cell(reference.std)} ({reference.seeds})" if reference.seeds else ""
        difference = None
        if ours and reference.mean is not None and reference.steps in (None, group.first.total_timesteps):
            difference = Estimate(ours.mean - reference.mean, low, high)
        rows.append(
            (
                group.task, group.algorithm, group.name, group.first.env_id, group.first.total_timesteps,
                own if reference.mean is not None else "", theirs, difference,
                comparison.verdict if comparison else "", sps if reference.sps else None,
                reference.sps, f"{reference.system} {reference.variant}", reference.env, reference.steps,
                reference.hardware, reference.source,
            )
        )  # fmt: skip
    columns = (
        *(*about, "id", "steps", "return", "published return", "difference", "verdict", "steps/s"),
        *("published steps/s", "published by", "their id", "their steps", "their hardware", "source"),
    )
    note = (
        "Mean ± standard deviation (seeds). Where the numbers of steps are equal: the difference with Welch's 95% "
        "interval, and, for the same version of the environment, the verdict of two one-sided tests within the margin "
        "of equivalence. Ids, steps and hardware often differ: compare them first."
    )
    return Table("references", "Ours and published", columns, rows, note)


def _settings(analysis: Analysis) -> Table:
    """A row for each task that has others of its environment beside it: the hyperparameters in which tasks differ."""
    settings = {(task.label, task.env_id): task.groups[0].first.setting for task in analysis.tasks}
    keys = differing(settings.values())
    rows = [
        (*task, *(json.dumps(setting[key]) if key in setting else "" for key in keys))
        for task, setting in settings.items()
        if keys
    ]
    return Table("settings", "Hyperparameters that differ", ("env", "id", *keys), rows)


def _runs(runs: Sequence[Run]) -> Table:
    """A row for each run, including the facts in which runs differ."""
    keys = differing([run.facts for run in runs])
    measured = sorted({name for run in runs for name in run.measured})
    rows = [
        (
            *(run.folder, run.env, run.backend, run.framework, run.seed, "finished" if run.finished else "unfinished"),
            *(run.global_step, run.recent_return_mean, run.steady_sps, run.mean_sps, run.compile_seconds),
            *(run.wall_seconds, run.resumes, run.cut_episodes, run.cut_fraction),
            *(run.measured.get(name) for name in measured),
            *(_text(run.facts.get(key, "")) for key in keys),
        )
        for run in runs
    ]
    columns = (
        *("folder", "env", "backend", "framework", "seed", "state", "steps", "return", "steady steps/s"),
        *("mean steps/s", "compilation (s)", "training (s)", "resumes", "cut episodes", "cut steps (fraction)"),
        *(*measured, *keys),
    )
    return Table("runs", "Every run", columns, rows, "The last columns are the facts in which runs differ.")


def _same(runs: Sequence[Run]) -> Table:
    """A row for each hyperparameter and each fact that all runs share."""
    trees = [run.setting | run.facts for run in runs]
    apart = set(differing(trees))
    rows = [(key, _text(value)) for key, value in trees[0].items() if key not in apart]
    return Table("same", "The same for all runs", ("what", "value"), rows)


def _text(value: object) -> str:
    return "none" if value is None else str(value)
