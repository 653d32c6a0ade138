"""What torch_compile compiles: nothing after the first iteration, and where it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from ppo_bench.configuration.load import load_config
from tests.runners import cartpole_problem, runner_for


def test_torch_compile_does_not_compile_again_after_the_first_iteration() -> None:
    runner = runner_for("torch_compile", cartpole_problem())
    state, _, _ = runner.iterate(runner.init(3))
    with torch.compiler.set_stance("fail_on_recompile"):
        for _ in range(3):
            state, _, _ = runner.iterate(state)


def test_torch_compile_keeps_what_it_compiles_where_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "nowhere")
    words = ["framework=torch_compile", f"framework.compile_cache={tmp_path}"]
    load_config(words).framework.compiler()  # type: ignore[union-attr]
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "torch")
