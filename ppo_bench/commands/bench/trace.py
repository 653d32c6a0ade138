"""Trace of one iteration by the framework's own profiler, in a format that Perfetto (ui.perfetto.dev) opens."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ppo_bench.commands.bench.training import Training, start_training
from ppo_bench.configuration.config import Config


def trace(config: Config, path: Path) -> Generator[Any, None, None]:
    """Yield what the start took; then write the trace of an iteration to `path`, a `.json.gz`, and yield it."""
    training, start_up = start_training(config)
    yield start_up
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
