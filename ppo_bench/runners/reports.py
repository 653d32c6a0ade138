"""Reports of an iteration that a JAX program has computed: metrics and finished episodes, of several runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.common.errors import FailedRuns
from ppo_bench.envs.float_range import out_of_range
from ppo_bench.runners.base import Episode, TrainingSpec
from ppo_bench.runners.episodes import EpisodeTotals, FinishedEpisodes, accumulate_returns, to_episodes
from ppo_bench.runners.program import RolloutRewards
from ppo_bench.runners.seeds import IterationReports


class PendingIteration(NamedTuple):
    """An enqueued iteration and its results, which may be pending on the device; see `ppo_bench/runners/program.py`."""

    rewards: RolloutRewards
    metrics: dict[str, jax.Array]


def collect_reports(
    spec: TrainingSpec, learning_rates: Sequence[float], pending: PendingIteration, totals: EpisodeTotals
) -> tuple[EpisodeTotals, IterationReports]:
    """Totals after an iteration of S runs, and what it measured, from its results on the host.

    Arrays of `pending` are those of a run, stacked `[S, ...]`; those past the learning rates are padding. `totals` are
    those of all `S * N` environments before it, run by run. Raises `FailedRuns` if a reward is out of range.
    """
    runs = len(learning_rates)
    raw_rewards, episode_over, value_mask = (np.asarray(array)[:runs] for array in pending.rewards)
    limit = spec.max_reward
    within = (raw_rewards.max(axis=(1, 2)) <= limit) & (raw_rewards.min(axis=(1, 2)) >= -limit)
    if not within.all():
        failed = np.flatnonzero(~within).tolist()
        reasons = (out_of_range("a reward", raw_rewards[k], spec.first_env, limit) for k in failed)
        raise FailedRuns(dict(zip(failed, map(str, reasons), strict=True)))
    side_by_side = (array.reshape(-1, array.shape[-1]) for array in (raw_rewards, episode_over, value_mask))
    totals, ended = accumulate_returns(totals, *side_by_side)
    episodes = _by_run(ended, runs, spec.num_envs)
    own = {name: np.asarray(array, np.float64)[:runs].tolist() for name, array in pending.metrics.items()}
    own.setdefault("learning_rate", list(learning_rates))
    own["masked_fraction"] = (1.0 - value_mask.mean(axis=(1, 2))).tolist()
    names = [metric.name for metric in metrics_of(spec.algorithm, spec.network)]
    metrics = [dict(zip(names, row, strict=True)) for row in zip(*(own[name] for name in names), strict=True)]
    return totals, list(zip(metrics, episodes, strict=True))


def _by_run(ended: FinishedEpisodes, runs: int, num_envs: int) -> list[list[Episode]]:
    """Episodes of each run, in the order of their ends."""
    run_ids, envs = np.divmod(ended.envs, num_envs)
    in_order = ended._replace(envs=envs).reorder(np.lexsort((envs, ended.steps, run_ids)))
    episodes, last = to_episodes(in_order, num_envs), np.cumsum(np.bincount(run_ids, minlength=runs)).tolist()
    return [episodes[first:past] for first, past in pairwise([0, *last])]
