"""Our figures beside published ones."""

from __future__ import annotations

import math
from typing import NamedTuple

from scipy import stats

from ppo_bench.commands.report.groups import Group
from ppo_bench.commands.report.published import Reference, references_of
from ppo_bench.commands.report.statistics import SampleMoments, moments, welch


class AgainstPublished(NamedTuple):
    """Ours beside a published figure."""

    group: Group
    returns: SampleMoments | None
    sps: float | None
    """Mean over the training, as publications have it: steps over time."""
    reference: Reference
    low: float
    """Ends of the 95% interval of the difference of mean returns; NaN where it has none."""
    high: float


def against_published(group: Group) -> list[AgainstPublished]:
    """Ours beside everything published of the same environment."""
    finals, speeds = group.values("final_return_mean"), group.values("mean_sps")
    ours = moments(finals) if len(finals) else None
    sps = float(speeds.mean()) if len(speeds) else None
    rows = []
    for reference in references_of(group.first.env_id, group.first.kind):
        if (reference.mean is None or ours is None) and (reference.sps is None or sps is None):
            continue
        low = high = math.nan
        if ours and ours.n > 1 and reference.mean is not None and (reference.seeds or 0) > 1:
            # Publications give the deviation over seeds with the denominator n.
            n = reference.seeds or 0
            theirs = SampleMoments(reference.mean, (reference.std or 0.0) * math.sqrt(n / (n - 1)), n)
            difference, error, freedom = welch(ours, theirs)
            half = float(stats.t.ppf(0.975, freedom)) * error if error > 0 else 0.0
            low, high = difference - half, difference + half
        rows.append(AgainstPublished(group, ours, sps, reference, low, high))
    return rows
