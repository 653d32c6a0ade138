"""Timing of the iterations of a training, and the trace of one by its framework's profiler."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import EnvStep, GraphEnv, VectorEnv
from ppo_bench.envs.groups import GroupedVectorEnv
from ppo_bench.envs.host import VectorEnvWrapper
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.mathematics.shards import Shard
from ppo_bench.runners.base import Runner
from ppo_bench.runs.distributed import build_runner
from ppo_bench.tuning.machine import peak_memory_bytes

WARM_UP_ITERATIONS = 2
"""Number of iterations before the first measured one. The first compiles; the second may compile again for other
shapes."""


class StartUp(NamedTuple):
    """Time and memory that a program used before its first measurement."""

    setup_seconds: float
    """Duration of importing packages and of making environments, network and initial weights."""
    compile_seconds: float
    """Duration of the first iteration minus that of the last before the measurements."""
    peak_memory_bytes: int
    """Peak resident memory of the process, or of all processes that share the training, with the environments."""
    gpu_memory_bytes: int | None
    """Peak memory of the framework on the GPU; None without one."""


class TimedEnv(VectorEnvWrapper):
    """A wrapper that adds up the duration of steps, and records the time at which the last one ended."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        self.stepping_seconds = 0.0
        self.last_ended = 0.0

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        started = time.perf_counter()
        step = self._env.step(actions)
        self.last_ended = time.perf_counter()
        self.stepping_seconds += self.last_ended - started
        return step


def _timed(env: VectorEnv | GraphEnv, _: Shard) -> Any:
    return env if isinstance(env, GraphEnv | GroupedVectorEnv) else TimedEnv(env)


class Training:
    """A runner whose iterations are timed."""

    runner: Runner[Any]
    state: Any
    timed: TimedEnv | None
    """The environments, unless they are on the device, step in groups or are in several processes."""

    def __init__(self, config: Config, update_epochs: int) -> None:
        config = replace(config, ppo=replace(config.ppo, update_epochs=update_epochs))
        self.runner, env = build_runner(config, config.framework.runner, _timed if config.processes == 1 else None)
        self.timed = env if isinstance(env, TimedEnv) else None
        self.state = self.runner.init(config.root.seed)

    def iteration(self) -> tuple[float, float, float]:
        """Run an iteration; its duration, that of its environment steps, and the time after its last step, in seconds.

        The latter two are 0 without `timed`.
        """
        if self.timed:
            self.timed.stepping_seconds = 0.0
        started = time.perf_counter()
        self.state, _, _ = self.runner.iterate(self.state)
        ended = time.perf_counter()
        if not self.timed:
            return ended - started, 0.0, 0.0
        return ended - started, self.timed.stepping_seconds, ended - self.timed.last_ended


def start_training(config: Config) -> tuple[Training, StartUp]:
    """A training after its first iterations, and what they took."""
    started = time.perf_counter()
    training = Training(config, config.ppo.update_epochs)
    setup_seconds = time.perf_counter() - started
    first, *_, last = (training.iteration()[0] for _ in range(WARM_UP_ITERATIONS))
    return training, StartUp(setup_seconds, first - last, peak_memory_bytes(), _gpu_memory_bytes(config))


def _gpu_memory_bytes(config: Config) -> int | None:
    precision = PRECISIONS[config.root.precision]
    if config.framework.name.startswith("torch"):
        import torch

        from ppo_bench.runners.torch_device import pick_device

        device = pick_device(config.root.device, precision)
        return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    from ppo_bench.runners import jax_device

    stats = jax_device.pick_device(config.root.device, precision).memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None


def trace(config: Config, path: Path) -> Generator[Any, None, None]:
    """Yield what the start took; then write rank 0's trace of an iteration to `path`, a `.json.gz`, and yield that."""
    training, start_up = start_training(config)
    yield start_up
    if config.rank > 0:
        training.iteration()
    else:
        by_torch = config.framework.name.startswith("torch")
        (_trace_torch if by_torch else _trace_jax)(training, path)
    yield path


def _trace_torch(training: Training, path: Path) -> None:
    from torch.profiler import profile

    with profile() as profiler:  # the CPU, and a GPU if there is one
        training.iteration()
    profiler.export_chrome_trace(str(path))


def _trace_jax(training: Training, path: Path) -> None:
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            training.iteration()
        (recorded,) = Path(folder).rglob("perfetto_trace.json.gz")
        shutil.copyfile(recorded, path)
