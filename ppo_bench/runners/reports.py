"""Reports of an iteration that a JAX program has computed: metrics and finished episodes, of several runs at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from ppo_bench.algorithms.base import metrics_of
from ppo_bench.common.errors import FailedRuns
from ppo_bench.envs.float_range import out_of_range
from ppo_bench.runners.base import Episode, Problem
from ppo_bench.runners.episodes import Ended, Totals, episodes_of, folded
from ppo_bench.runners.program import Played
from ppo_bench.runners.seeds import Measured


class Ahead(NamedTuple):
    """An enqueued iteration and its results, which may be pending on the device; see `ppo_bench/runners/program.py`."""

    played: Played
    measured: dict[str, jax.Array]


def reported(
    problem: Problem, learning_rates: Sequence[float], ahead: Ahead, totals: Totals
) -> tuple[Totals, Measured]:
    """Totals after an iteration of S runs, and what it measured, from its results on the host.

    Arrays of `ahead` are those of one run, stacked `[S, ...]`; rows past the S learning rates are padding. `totals` are
    those of all `S * N` environments before it, run by run. Raises `FailedRuns` if a reward is out of range.
    """
    runs = len(learning_rates)
    raw_rewards, episode_over, valid = (np.asarray(array)[:runs] for array in ahead.played)
    limit = problem.max_reward
    within = (raw_rewards.max(axis=(1, 2)) <= limit) & (raw_rewards.min(axis=(1, 2)) >= -limit)
    if not within.all():
        failed = np.flatnonzero(~within).tolist()
        reasons = (out_of_range("a reward", raw_rewards[k], problem.first_env, limit) for k in failed)
        raise FailedRuns(dict(zip(failed, map(str, reasons), strict=True)))
    side_by_side = (array.reshape(-1, array.shape[-1]) for array in (raw_rewards, episode_over, valid))
    totals, ended = folded(totals, *side_by_side)
    episodes = _by_run(ended, runs, problem.num_envs)
    own = {name: np.asarray(array, np.float64)[:runs].tolist() for name, array in ahead.measured.items()}
    own.setdefault("learning_rate", list(learning_rates))
    own["masked_fraction"] = (1.0 - valid.mean(axis=(1, 2))).tolist()
    names = [metric.name for metric in metrics_of(problem.algorithm, problem.network)]
    metrics = [dict(zip(names, row, strict=True)) for row in zip(*(own[name] for name in names), strict=True)]
    return totals, list(zip(metrics, episodes, strict=True))


def _by_run(ended: Ended, runs: int, num_envs: int) -> list[list[Episode]]:
    """Episodes of each run, in the order of their ends."""
    of_run, envs = np.divmod(ended.envs, num_envs)
    in_order = ended._replace(envs=envs).sorted(np.lexsort((envs, ended.steps, of_run)))
    episodes, last = episodes_of(in_order, num_envs), np.cumsum(np.bincount(of_run, minlength=runs)).tolist()
    return [episodes[first:past] for first, past in pairwise([0, *last])]
