"""Evaluations of a run's policy during training: whole episodes in fresh environments, greedy and sampled.

The results are two columns of metrics.jsonl, and so of the trackers and the report. Evaluations do not change training:
they have environments, seeds and samples of their own.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.observation_selection import make_env
from ppo_bench.envs.vectorized import without_worker_processes
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.checkpoint import Checkpoint
from ppo_bench.runs.play import load_agent, play
from ppo_bench.runs.results import EVALUATION_COLUMNS

MAX_EVALUATION_ENVS = 10
"""Maximum number of environments that an evaluation steps in parallel."""


class Evaluator:
    """The evaluations of runs that are trained together; disabled by `evaluation.every_iterations=0`."""

    def __init__(self, config: Config) -> None:
        self._config, self._wanted = config, config.root.evaluation
        self._env: VectorEnv | None = None

    @property
    def columns(self) -> dict[str, float | None]:
        """The columns, all None, of an iteration without an evaluation; empty if evaluations are disabled."""
        return dict.fromkeys(EVALUATION_COLUMNS) if self._wanted.every_iterations else {}

    def is_due(self, iteration: int) -> bool:
        """Whether the policy is evaluated after `iteration`; the last one always is, unless they are disabled."""
        every = self._wanted.every_iterations
        return every > 0 and (iteration % every == 0 or iteration == self._config.num_iterations)

    def evaluate(self, arrays: Arrays, seed: int, stop: Sequence[int]) -> dict[str, float | None] | None:
        """Mean returns of the policy in `arrays` by column: with the likeliest actions and with sampled ones.

        None as soon as `stop` is not empty. All evaluations of a run use the same seeds, which follow from its `seed`.
        """
        agent = load_agent(self._config, Checkpoint(arrays, {}), self._envs(), greedy=True, seed=seed)
        means: list[float | None] = []
        for greedy in (True, False):
            played = play(self._envs(), replace(agent, greedy=greedy), self._wanted.episodes, seed, stop)
            returns = [episode.episode_return for episode in played]
            if stop:
                return None
            mean = statistics.fmean(returns)
            means.append(mean if math.isfinite(mean) else None)
        return dict(zip(EVALUATION_COLUMNS, means, strict=True))

    def close(self) -> None:
        """Close the evaluation environments."""
        if self._env:
            self._env.close()

    def _envs(self) -> VectorEnv:
        if self._env is None:
            task = self._config.task.with_num_envs(min(MAX_EVALUATION_ENVS, self._wanted.episodes))
            self._env = to_vector_env(make_env(without_worker_processes(self._config.backend), task))
        return self._env
