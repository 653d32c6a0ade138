"""The summary of the report in sentences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ppo_bench.commands.report.analysis import Analysis, Pair
from ppo_bench.commands.report.formatting import TIMES, interval, number, times
from ppo_bench.commands.report.groups import ComparedTask, Group
from ppo_bench.commands.report.options import Options
from ppo_bench.commands.report.over_envs import Overall
from ppo_bench.commands.report.ranking import ranked
from ppo_bench.commands.report.statistics import Estimate, bootstrap, ratio_of_means

MAX_TASKS = 60
"""Maximum number of tasks with a paragraph of their own."""


MAX_SETTINGS = 5
"""Maximum number of settings of one environment that the summary names."""


class Paragraph(NamedTuple):
    """A paragraph of the summary, about one task or all tasks."""

    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.about}: {self.text}"


def summary(analysis: Analysis, options: Options, over_envs: Sequence[Sequence[Overall]]) -> list[Paragraph]:
    """A paragraph on all tasks together, and one for each task: which framework is fastest, by how much, and whether
    all learn the same."""
    paragraphs = []
    for task in analysis.tasks[:MAX_TASKS]:
        own = [pair for pair in analysis.pairs if pair.task is task]
        about = f"{task.label} ({task.env_id}, {task.groups[0].first.total_timesteps:,} steps)"
        paragraphs.append(Paragraph(about, " ".join(_speed(task, own, options) + _returns(task, own, options))))
    left = len(analysis.tasks) - MAX_TASKS
    if left > 0:
        paragraphs.append(Paragraph(f"{left} more tasks", "they are in the tables."))
    return [*_over_envs(over_envs), *_best_settings(analysis), *_overall(analysis, options), *paragraphs]


def _over_envs(found: Sequence[Sequence[Overall]]) -> list[Paragraph]:
    """A paragraph for each way of executing with several settings over several environments."""
    paragraphs = []
    for rows in found:
        shown = [f"{row.setting} {interval(row.score)}" for row in rows[:MAX_SETTINGS]]
        above = [f"one of {row.setting} {interval(row.above)}" for row in rows[:MAX_SETTINGS] if row.above]
        text = f"best first, by the interquartile mean of normalised scores: {'; '.join(shown)}. "
        text += f"The probability that a run ends above one of the first: {'; '.join(above)}."
        about = f"{len(rows)} settings over {rows[0].envs} environments, {rows[0].algorithm}"
        paragraphs.append(Paragraph(about, text))
    return paragraphs


def _best_settings(analysis: Analysis) -> list[Paragraph]:
    """A paragraph for each environment with several settings, which names the best ones."""
    paragraphs = []
    for rows in ranked(analysis.tasks):
        shown = [f"{row.setting} {interval(row.mean)}" for row in rows[:MAX_SETTINGS]]
        behind = sum(row.difference is not None and row.difference.high < 0 for row in rows)
        text = f"best first, by mean final return: {'; '.join(shown)}."
        text += f" {behind} of the {len(rows) - 1} others lie below the first by their 90% intervals, which are"
        text += " not corrected for choosing the first."
        paragraphs.append(Paragraph(f"{len(rows)} settings of {rows[0].env}, {rows[0].algorithm}", text))
    return paragraphs


def _overall(analysis: Analysis, options: Options) -> list[Paragraph]:
    if len(analysis.tasks) < 2:
        return []
    sentences = []
    for name in analysis.algorithms:
        pairs = [pair for pair in analysis.pairs if pair.group.algorithm == name]
        speedups = [pair.speedup.point for pair in pairs if pair.speedup]
        verdicts = [pair.returns.verdict for pair in pairs if pair.returns]
        if not speedups:
            continue
        factor = math.exp(sum(map(math.log, speedups)) / len(speedups))
        of = f"of {options.baseline} (geometric mean over {len(speedups)})"
        words = f"{name} has {factor:#.3g}{TIMES} the steady speed {of}"
        if verdicts:
            same = sum(verdict.startswith("equivalent") for verdict in verdicts)
            others = {kind: verdicts.count(kind) for kind in ("different", "undecided")}
            words += f" and is equivalent to it in {same} of {len(verdicts)} tests"
            words += "".join(f", {kind} in {count}" for kind, count in others.items() if count)
        sentences.append(f"{words}.")
    return [Paragraph(f"{len(analysis.tasks)} tasks", " ".join(sentences))] if sentences else []


def _speed(task: ComparedTask, pairs: Sequence[Pair], options: Options) -> list[str]:
    ranked = sorted(
        (group for group in task.groups if len(group.values("steady_sps"))),
        key=lambda group: -group.values("steady_sps").mean(),
    )
    if not ranked:
        return []
    fastest = ranked[0]
    at = f"{fastest.values('steady_sps').mean():,.0f} steps/s"
    if len(means := fastest.values("mean_sps")):
        at += f" ({means.mean():,.0f} over the whole training)"
    if len(ranked) == 1:
        return [f"{fastest.algorithm} runs at {at}."]
    ratio = _ratio(fastest, ranked[1], options)
    ahead = f"{times(ratio)} {ranked[1].algorithm}"
    if math.isnan(ratio.low):
        ahead = f"{ahead}, with too few seeds for an interval"
    elif ratio.low <= 1:
        ahead = f"but not told apart from {ranked[1].algorithm} ({times(ratio)})"
    sentences = [f"{fastest.algorithm} is fastest at {at}, {ahead}."]
    said = {fastest.algorithm, ranked[1].algorithm}  # the first sentence has their ratio
    gains = [
        f"{pair.group.algorithm} {times(pair.speedup)}"
        for pair in pairs
        if pair.speedup and not {pair.group.algorithm, pair.baseline.algorithm} <= said
    ]
    if gains:
        sentences.append(f"Speed-up over {options.baseline}: {'; '.join(gains)}.")
    return sentences


def _ratio(ours: Group, theirs: Group, options: Options) -> Estimate:
    x, y = ours.values("steady_sps"), theirs.values("steady_sps")
    return bootstrap(ratio_of_means, [x], [y], **options.resampling)


def _returns(task: ComparedTask, pairs: Sequence[Pair], options: Options) -> list[str]:
    finals = [(group, group.values("final_return_mean")) for group in task.groups]
    means = [f"{group.algorithm} {number(values.mean())}" for group, values in finals if len(values)]
    if not means:
        ended = all(group.finished for group in task.groups)
        return ["No episode has ended." if ended else "No final return is known yet."]
    sentences = [f"Mean final return: {', '.join(means)}."]
    compared = [pair for pair in pairs if pair.returns]
    if not compared:
        return sentences
    verdicts = {pair.returns.verdict for pair in compared if pair.returns}
    margins = sorted({number(pair.returns.margin) for pair in compared if pair.returns})
    tested = {group.algorithm for pair in compared for group in (pair.group, pair.baseline)}
    untested = [
        group.algorithm
        for group, values in finals
        if len(values) and group.algorithm not in tested and group.first.framework != options.baseline
    ]
    if untested:
        sentences.append(f"Not tested, since it or its baseline has a single run: {', '.join(untested)}.")
    if verdicts == {"equivalent"}:
        worst = max(pair.returns.p_equivalent for pair in compared if pair.returns)
        who = "The others" if untested else "They"
        sentences.append(
            f"{who} learn the same: equivalent to {options.baseline} within a margin of "
            f"{' or '.join(f'±{margin}' for margin in margins)}, {_p(worst)}."
        )
        return sentences
    for pair in compared:
        found = pair.returns
        assert found is not None
        told = f"{number(found.difference)} [{number(found.low)}, {number(found.high)}] from {pair.baseline.algorithm}"
        sentences.append(f"{pair.group.algorithm} is {WORDS[found.verdict]} ({told}, margin ±{number(found.margin)}).")
    return sentences


WORDS = {
    "equivalent": "equivalent",
    "equivalent, though different": "different, but by less than the margin",
    "different": "different, by more than can be called the same",
    "undecided": "neither shown to be the same nor to be different: more seeds are needed",
}


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 or math.isnan(value) else f"p = {value:.3f}"
