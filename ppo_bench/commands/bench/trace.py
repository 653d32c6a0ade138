"""Trace of one iteration by the framework's own profiler, in a format that Perfetto (ui.perfetto.dev) opens."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from ppo_bench.commands.bench.laps import Laps
from ppo_bench.configuration.config import Config


class Traced(Laps):
    """`Laps` that records each turn with a profiler."""

    def __init__(self, path: Path, config: Config) -> None:
        """`path` is the file for the trace, a `.json.gz`."""
        super().__init__(config)
        self._path = path
        self._of_torch = config.framework.name.startswith("torch")

    def turn(self) -> float:
        """Duration of an iteration in seconds; the profiler makes it longer."""
        return self._by_torch() if self._of_torch else self._by_jax()

    def _by_torch(self) -> float:
        from torch.profiler import profile

        with profile() as profiler:  # the CPU, and a GPU if there is one
            seconds = super().turn()
        profiler.export_chrome_trace(str(self._path))
        return seconds

    def _by_jax(self) -> float:
        import jax

        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder, create_perfetto_trace=True):
                seconds = super().turn()
            (trace,) = Path(folder).rglob("perfetto_trace.json.gz")
            shutil.copyfile(trace, self._path)
        return seconds
