"""Callbacks of a training: evaluations, videos and a listener. No time or speed includes their seconds.

An evaluation plays whole episodes of the policy in fresh environments, greedy and sampled. Its results are two columns
of metrics.jsonl, and so of the trackers and the report. It does not change training, since its environments, seeds and
samples are others.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ppo_bench.common.errors import FailedRuns, RunError
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.envs.vectorized import without_worker_processes
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.shards import ProcessGroup
from ppo_bench.runners.checkpoint import Checkpoint
from ppo_bench.runners.seeds import SeedsRunner
from ppo_bench.runs.distributed import all_gather_object
from ppo_bench.runs.play import load_agent, play
from ppo_bench.runs.results import EVALUATION_COLUMNS, mean
from ppo_bench.runs.run_writer import RunWriter

Listener = Callable[[Path, Mapping[str, Any]], object]
"""A function that is called with a run's folder and its new row of metrics.jsonl after each iteration."""
Columns = dict[str, float | None]
MAX_EVALUATION_ENVS = 10
"""Maximum number of environments that an evaluation steps in parallel."""


class Callbacks:
    """The callbacks of runs that are trained together: only seed and `VMAPPABLE_HYPERPARAMETERS` differ."""

    def __init__(
        self, configs: Sequence[Config], on_iteration: Listener | None = None, process_group: ProcessGroup | None = None
    ) -> None:
        """`process_group` connects the ranks of the training; rank 0 evaluates. None if this process trains alone."""
        self.configs, self.process_group = configs, process_group
        self._evaluation = configs[0].root.evaluation
        self._env: VectorEnv | None = None
        self._on_iteration = on_iteration
        self.seconds = 0.0
        """Total seconds of all callbacks so far."""

    @property
    def columns(self) -> list[Columns]:
        """Columns of each run's row for an iteration without an evaluation."""
        names = EVALUATION_COLUMNS if self._evaluation.every_iterations else ()
        return [dict.fromkeys(names) for _ in self.configs]

    def evaluate(self, runner: SeedsRunner, state: Any, iteration: int, stop: Sequence[int]) -> list[Columns] | None:
        """Evaluation columns of each run's row for `iteration`; None if `stop` was not empty during the evaluation."""
        every, is_last = self._evaluation.every_iterations, iteration == self.configs[0].num_iterations
        if not every or (iteration % every and not is_last):
            return self.columns
        started, found = time.perf_counter(), None
        exported = runner.export(state)
        if self.configs[0].rank == 0:
            found = self._evaluate_runs(exported, stop)
            found = None if stop else found
        found = all_gather_object(self.process_group, found)[0]
        self.seconds += time.perf_counter() - started
        return found

    def _evaluate_runs(self, exported: Sequence[Arrays], stop: Sequence[int]) -> list[Columns]:
        """The columns of each run. Raises `FailedRuns` if the evaluations of some of several runs fail."""
        found, reasons = [], {}
        for position, (arrays, config) in enumerate(zip(exported, self.configs, strict=True)):
            try:
                found.append(self._evaluate_run(arrays, config.root.seed, stop))
            except RunError as error:
                if len(self.configs) == 1:
                    raise
                reasons[position] = str(error)
        if reasons:
            raise FailedRuns(reasons)
        return found

    def _evaluate_run(self, arrays: Arrays, seed: int, stop: Sequence[int]) -> Columns:
        """Mean returns of the policy in `arrays` by column: with the likeliest actions and with sampled ones.

        Ends as soon as `stop` is not empty. All evaluations of a run use the same seeds, which follow from its `seed`.
        """
        env = self.evaluation_env()
        agent = load_agent(self.configs[0], Checkpoint(arrays, {}), env, greedy=True, seed=seed)
        means: list[float | None] = []
        for greedy in (True, False):
            played = play(env, replace(agent, greedy=greedy), self._evaluation.episodes, seed, stop)
            value = mean([episode.episode_return for episode in played])
            means.append(value if value is not None and math.isfinite(value) else None)
        return dict(zip(EVALUATION_COLUMNS, means, strict=True))

    def evaluation_env(self) -> VectorEnv:
        """The environments of evaluations, made when they are first needed."""
        if self._env is None:
            config = self.configs[0]
            task = config.task.with_num_envs(min(MAX_EVALUATION_ENVS, self._evaluation.episodes))
            self._env = to_vector_env(make_env(without_worker_processes(config.backend), task))
        return self._env

    @property
    def wait_for_host(self) -> bool:
        """Whether a listener or other processes wait for the host after every iteration."""
        return self._on_iteration is not None or self.process_group is not None

    def notify(self, rows: Sequence[tuple[RunWriter, Mapping[str, Any]]]) -> None:
        """Give the listener, if there is one, the runs' new rows of metrics.jsonl; nothing is computed meanwhile."""
        if self._on_iteration is None:
            return
        started = time.perf_counter()
        for writer, row in rows:
            writer.write()  # a listener may read it
            self._on_iteration(writer.folder, row)
        self.seconds += time.perf_counter() - started

    def record_videos(self, writers: Sequence[RunWriter], checkpoints: Sequence[Path], stop: Sequence[int]) -> None:
        """Record videos of the policies of the newest `checkpoints`, where one is due."""
        for writer, newest in zip(writers, checkpoints, strict=True):
            self.seconds += writer.video_recorder.record(newest, writer.loop.episodes, stop)

    def close(self) -> None:
        """Close the environments of evaluations."""
        if self._env:
            self._env.close()
