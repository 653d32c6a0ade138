"""The tables of the report."""

from __future__ import annotations

from collections.abc import Sequence

from ppo_bench.commands.report.analysis import ALL, Aggregate, Analysis
from ppo_bench.commands.report.folders import LeftOut, Run
from ppo_bench.commands.report.formatting import cell
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.over_envs import Overall, over_envs
from ppo_bench.commands.report.ranking import ranking
from ppo_bench.commands.report.settings import every_run, same, settings
from ppo_bench.commands.report.statistics import Estimate
from ppo_bench.commands.report.table import Table


def tables(
    analysis: Analysis,
    options: Options,
    runs: Sequence[Run],
    left_out: Sequence[LeftOut],
    settings_over_envs: Sequence[Sequence[Overall]],
) -> list[Table]:
    """All tables that have rows; `aggregate` is always included."""
    made = [
        Table("aggregate", "All aggregates", Aggregate._fields, analysis.aggregates),
        over_envs(settings_over_envs),
        ranking(analysis.tasks),
        _returns(analysis),
        _speed(analysis, options),
        _equivalence(analysis, options),
        _improvement(analysis),
        _over_tasks(analysis),
        _human(analysis),
        _references(analysis),
        *settings(analysis.tasks),
        every_run(runs),
        same(runs),
        Table("left_out", "Left out", ("folder", "reason"), [(each.folder, each.reason) for each in left_out]),
    ]
    return [table for table in made if table.rows or table.key == "aggregate"]


def _returns(analysis: Analysis) -> Table:
    rows = []
    for task in analysis.tasks:
        scale = analysis.scales.get(task.label)
        between = f"{cell(scale.low)} ({scale.low_is}) to {cell(scale.high)} ({scale.high_is})" if scale else ""
        for group in task.groups:
            if average := analysis.aggregate(group, "final_return_mean"):
                found = [analysis.estimate(group, name) for name in ("final_return_median", "final_return_iqm")]
                gap = analysis.estimate(group, "optimality_gap")
                rows.append((task.label, group.algorithm, average.seeds, *found, average.estimate, gap, between))
    columns = ("env", "algorithm", "seeds", "median", "IQM", "mean", "optimality gap", "scores from 0 to 1 are")
    note = (
        "Mean return of the last 100 training episodes of each seed; 95% intervals over seeds, Student's for the mean, "
        "by the bootstrap for median, IQM and optimality gap. "
        "The optimality gap is how far normalised scores stay below 1."
    )
    return Table("returns", "Aggregates of final returns", columns, rows, note)


def _speed(analysis: Analysis, options: Options) -> Table:
    metrics = ("steady_sps", "mean_sps", "compile_seconds", "setup_seconds", "wall_seconds")
    gains = ("speedup_steady_sps", "speedup_wall_time")
    rows = []
    for task in analysis.tasks:
        for group in task.groups:
            if steady := analysis.aggregate(group, "steady_sps"):
                cells = [analysis.estimate(group, name) for name in metrics + gains]
                rows.append((task.label, group.algorithm, steady.seeds, *cells))
    columns = (
        *(
            "env",
            "algorithm",
            "seeds",
            "steady speed (steps/s)",
            "mean speed (steps/s)",
            "compilation (s)",
            "set-up (s)",
            "training (s)",
        ),
        *("speed-up", "speed-up of training time"),
    )
    note = (
        "Means over seeds with Student's 95% intervals. Steady speed is that of a run's median iteration, mean speed "
        "its steps over its training time less compilation: on a shared machine the first is higher. Compilation is "
        "what the first iterations took beyond median ones, and part of the training time. "
        f"Speed-ups are over {options.baseline}."
    )
    return Table("speed", "Speeds and times", columns, rows, note)


def _equivalence(analysis: Analysis, options: Options) -> Table:
    rows = [
        (
            *(pair.task.label, pair.group.algorithm, pair.baseline.algorithm),
            Estimate(found.difference, found.low, found.high),
            *(found.margin, "paired" if pair.paired else "Welch", found.p_equivalent, found.p_different),
            found.verdict,
        )
        for pair in analysis.pairs
        if (found := pair.returns)
    ]
    columns = (
        *("env", "algorithm", "compared with", "difference [90%]", "margin", "test"),
        *("p of equivalence", "p of difference", "verdict"),
    )
    note = (
        "Two one-sided t-tests (TOST) of mean final returns at 5%, of pairs with the same seed and noise, or Welch's "
        "where seeds or backends differ: equivalent if the difference is shown to lie "
        f"within the margin, {options.margin_in_words}. Undecided means that there are too few seeds to tell."
    )
    return Table("equivalence", "Tests of equivalence", columns, rows, note)


def _improvement(analysis: Analysis) -> Table:
    rows = [(row.task, row.ours, row.theirs, row.estimate) for row in analysis.improvements]
    note = "The chance that a run of the first ends with a higher return than one of the second; a tie counts half."
    return Table("improvement", "Probability of improvement", ("env", "algorithm", "over", "probability"), rows, note)


def _over_tasks(analysis: Analysis) -> Table:
    by = analysis.by_metric
    algorithms = dict.fromkeys((row.backend, row.framework) for row in analysis.aggregates if row.env == ALL)
    rows = []
    for scores in ("normalised_score", "human_normalised_score"):
        for backend, framework in algorithms:
            names = [f"{scores}_median", f"{scores}_iqm", f"{scores}_mean"]
            names += ["optimality_gap"] if scores == "normalised_score" else []
            found = [by[ALL, backend, framework, name] for name in names if (ALL, backend, framework, name) in by]
            if found:
                cells = [each.estimate for each in found] + [None] * (4 - len(found))
                rows.append((scores.replace("_", " "), framework, backend, found[0].seeds, *cells))
    shared = ", ".join(task.label for task in analysis.shared)
    note = (
        f"Over the environments that all have finished and that have a scale: {shared}. The bootstrap is stratified by "
        "environment; human-normalised scores are only over Atari."
    )
    columns = ("scores", "framework", "backend", "seeds", "median", "IQM", "mean", "optimality gap")
    return Table("over_envs", "Over all environments", columns, rows, note)


def _human(analysis: Analysis) -> Table:
    rows = []
    for task in analysis.tasks:
        for group in task.groups:
            if found := analysis.aggregate(group, "human_normalised_score"):
                scale = analysis.scales[task.label]
                row = (task.label, group.algorithm, found.seeds, found.estimate, scale.low, scale.high, scale.source)
                rows.append(row)
    columns = ("env", "algorithm", "seeds", "human-normalised score", "random play", "human", "source")
    return Table("human", "Scores and their scale", columns, rows, "(return - random) / (human - random), mean.")


def _references(analysis: Analysis) -> Table:
    rows = []
    for group, ours, sps, reference, low, high, comparison in analysis.references:
        own = f"{cell(ours.mean)} ± {cell(ours.std) or '?'} ({ours.n})" if ours else ""
        theirs = f"{cell(reference.mean)} ± {cell(reference.std)} ({reference.seeds})" if reference.seeds else ""
        difference = None
        if ours and reference.mean is not None and reference.steps in (None, group.first.total_timesteps):
            difference = Estimate(ours.mean - reference.mean, low, high)
        rows.append(
            (
                group.task, group.algorithm, group.first.env_id, group.first.total_timesteps,
                own if reference.mean is not None else "", theirs, difference,
                comparison.verdict if comparison else "", sps if reference.sps else None,
                reference.sps, f"{reference.system} {reference.variant}", reference.env, reference.steps,
                reference.hardware, reference.source,
            )
        )  # fmt: skip
    columns = (
        *("env", "algorithm", "id", "steps", "return", "published return", "difference", "verdict", "steps/s"),
        *("published steps/s", "published by", "their id", "their steps", "their hardware", "source"),
    )
    note = (
        "Mean ± standard deviation (seeds). Where the numbers of steps are equal: the difference with Welch's 95% "
        "interval, and, for the same version of the environment, the verdict of two one-sided tests within the margin "
        "of equivalence. Steps/s are means over the training, as the published ones are. Ids, steps and "
        "hardware often differ: compare them first."
    )
    return Table("references", "Side by side", columns, rows, note)
