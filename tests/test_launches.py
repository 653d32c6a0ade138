"""Counts of launches and copies in profiler traces: two in the format of a GPU's, and real ones of this machine."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ppo_bench.commands.bench.__main__ import main
from ppo_bench.commands.bench.launches import Launches, launches
from ppo_bench.commands.bench.training import trace
from ppo_bench.commands.bench.worker import Program
from ppo_bench.common.cli import exit_code
from ppo_bench.common.workers import RankWorkers
from ppo_bench.configuration.load import load_config


def span(name: str, start: float, length: float, cat: str | None = None, pid: int = 1, tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": start, "dur": length, "cat": cat, "pid": pid, "tid": tid}


def counted(folder: Path, events: list[dict[str, Any]]) -> Launches:
    path = folder / "trace.json.gz"
    with gzip.open(path, "wt") as file:
        json.dump({"traceEvents": events}, file)
    return launches(path)


def test_pytorch_on_a_gpu(tmp_path: Path) -> None:
    runtime = ["cudaLaunchKernel", "cudaLaunchKernelExC", "cudaGraphLaunch", "cudaMemcpyAsync", "cudaStreamSynchronize"]
    events = [span(name, k, 0.5, "cuda_runtime") for k, name in enumerate(runtime)]
    events += [span("cuLaunchKernelEx", 9, 0.5, "cuda_driver"), span("aten::add", 0, 1, "cpu_op")]
    events += [span("Memcpy HtoD (Pageable -> Device)", 3, 1, "gpu_memcpy")] * 2
    events += [span("Memcpy DtoH (Device -> Pageable)", 4, 1, "gpu_memcpy")]
    assert counted(tmp_path, events) == Launches(4, 2, 1)


def test_jax_on_a_gpu(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [{"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/device:GPU:0"}}]
    events += [span("fusion_1", 1, 1, pid=2), span("MemcpyH2D", 2, 1, pid=2), span("MemcpyD2H", 3, 1, pid=2)]
    events += [span("loop_add", 4, 1, pid=2), span("PjitFunction(act)", 0, 9, pid=1)]
    assert counted(tmp_path, events) == Launches(2, 1, 1)


def test_operations_within_others_and_views_count_once_and_not_at_all(tmp_path: Path) -> None:
    events = [
        span("aten::linear", 0, 10, "cpu_op"),
        span("aten::t", 1, 1, "cpu_op"),
        span("aten::addmm", 3, 4, "cpu_op"),
    ]
    events += [span("aten::mul", 20, 1, "cpu_op"), span("aten::add", 20, 1, "cpu_op", tid=2)]
    assert counted(tmp_path, events) == Launches(3, None, None)  # addmm, mul, and add of another thread


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "known"), [("torch_eager", "aten::addmm"), ("jax_xla", "PjitFunction")])
def test_a_bench_keeps_a_trace_and_counts_its_launches(
    framework: str, known: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "trace=true",
        "env=cartpole",
        "backend=envpool",
        f"framework={framework}",
        "ppo.num_steps=16",
        "device=cpu",
    ]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
    said, last = capsys.readouterr().out.splitlines()[-2:]
    path = Path(last)
    assert path.name == f"cartpole-envpool-{framework}.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert sum(known in event.get("name", "") for event in events) >= 17  # observations
    found = launches(path)
    assert said == f"{framework} on envpool: {found.in_words(16)}"
    assert f"{found.launches:,} launches in an iteration of 16 steps" in said
    if framework == "jax_xla":  # a program for noise, each of 17 observations, learning; and a conversion
        assert 17 + 2 <= found.launches <= 17 + 5
    else:
        assert found.launches > 17 * 5  # five operations and more for each observation


def test_the_first_rank_alone_writes_a_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = list[str]()
    started = SimpleNamespace(iteration=lambda: done.append("iteration")), None
    monkeypatch.setattr("ppo_bench.commands.bench.training.start_training", lambda _: started)
    monkeypatch.setattr("ppo_bench.commands.bench.training._trace_torch", lambda *_: done.append("trace"))
    for rank in (0, 1):
        list(trace(cast(Any, SimpleNamespace(rank=rank, framework=SimpleNamespace(name="torch_eager"))), tmp_path))
    assert done == ["trace", "iteration"]


def test_a_program_that_does_not_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would wait for it at its own end."""
    done = list[str]()

    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RankWorkers, "__init__", lambda *_: done.append("started"))
    monkeypatch.setattr(RankWorkers, "receive", interrupted)
    monkeypatch.setattr(RankWorkers, "__exit__", lambda *_: done.append("ended"))
    with pytest.raises(KeyboardInterrupt):
        Program(trace, load_config([]))
    assert done == ["started", "ended"]
