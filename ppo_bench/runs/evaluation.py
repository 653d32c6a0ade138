"""Evaluations of a run's policy during training: whole episodes in fresh environments, greedy and sampled.

The results are two columns of metrics.jsonl, and so of the trackers and the report. Evaluations do not change training:
they have environments, seeds and samples of their own.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.host import on_host
from ppo_bench.envs.observed import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.checkpoint import Checkpoint
from ppo_bench.runs.play import Agent, load_agent, play
from ppo_bench.runs.results import EVALUATION_COLUMNS

MOST_ENVS = 10
"""Maximum number of environments that an evaluation steps in parallel."""


class Evaluator:
    """The evaluations of one run; disabled by `evaluation.every_iterations=0`."""

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

    def evaluate(self, arrays: Arrays, stop: Sequence[int]) -> dict[str, float | None] | None:
        """Mean returns of the policy in `arrays` by column: with the likeliest actions and with sampled ones.

        None as soon as `stop` is not empty. All evaluations of a run use the same seeds.
        """
        means: list[float | None] = []
        for greedy in (True, False):
            played = play(self._envs(), self._agent(arrays, greedy), self._wanted.episodes, self._seed, stop)
            returns = [episode.episode_return for episode in played]
            if stop:
                return None
            means.append(statistics.fmean(returns))
        return dict(zip(EVALUATION_COLUMNS, means, strict=True))

    def close(self) -> None:
        """Close the evaluation environments."""
        if self._env:
            self._env.close()

    @property
    def _seed(self) -> int:
        return self._config.root.seed

    def _agent(self, arrays: Arrays, greedy: bool) -> Agent:
        return load_agent(self._config, Checkpoint(arrays, {}), self._envs(), greedy, self._seed)

    def _envs(self) -> VectorEnv:
        if self._env is None:
            task = self._config.task.at_least(min(MOST_ENVS, self._wanted.episodes))
            self._env = on_host(make_env(self._config.backend, task))
        return self._env
