"""Comparison of this report's returns and speeds with published ones."""

from __future__ import annotations

import math
from typing import NamedTuple

from ppo_bench.commands.report.groups import Group
from ppo_bench.commands.report.published import Reference, is_another_version, references_of, scale_of
from ppo_bench.commands.report.statistics import Comparison, SampleMoments, moments, t_quantile, tost_of_moments, welch

MARGIN = 0.05


class AgainstPublished(NamedTuple):
    """A group of runs beside one published result."""

    group: Group
    returns: SampleMoments | None
    """Moments of the group's final returns; None without finished runs."""
    sps: float | None
    """Steps over training time, averaged over the runs, as in publications."""
    reference: Reference
    low: float
    """Lower end of the 95% interval of the difference of mean returns; NaN if there is no interval."""
    high: float
    """Upper end of that interval."""
    comparison: Comparison | None = None
    """Equivalence test of the mean returns; None with other steps, another version or too few seeds."""


def against_published(group: Group, margin: float, margin_return: float | None) -> list[AgainstPublished]:
    """`group` beside each published result for its environment.

    The margin of equivalence is `margin_return`, or `margin` as in `margin_beside` if that is None.
    """
    finals, speeds = group.values("final_return_mean"), group.values("mean_sps")
    ours = moments(finals) if len(finals) else None
    sps = float(speeds.mean()) if len(speeds) else None
    rows = []
    for reference in references_of(group.first.env_id, group.first.kind):
        if (reference.mean is None or ours is None) and (reference.sps is None or sps is None):
            continue
        low, high, comparison = math.nan, math.nan, None
        if ours and ours.n > 1 and (theirs := reference.moments):
            difference, error, freedom = welch(ours, theirs)
            half = t_quantile(0.975, freedom) * error if error > 0 else 0.0
            low, high = difference - half, difference + half
            env_id = group.first.env_id
            if reference.steps in (None, group.first.total_timesteps) and not is_another_version(env_id, reference.env):
                within = margin_return or margin_beside(env_id, theirs.mean, margin)
                comparison = tost_of_moments(ours, theirs, within)
        rows.append(AgainstPublished(group, ours, sps, reference, low, high, comparison))
    return rows


def margin_beside(env_id: str, published: float, margin: float) -> float:
    """The equivalence margin as a return: the fraction `margin` of the environment's published scale.

    Without a scale it is that fraction of the `published` mean return, measured from random play if that is known.
    """
    scale = scale_of(env_id)
    if scale and scale.high is not None:
        return margin * abs(scale.high - scale.low)
    return margin * abs(published - (scale.low if scale else 0.0))
