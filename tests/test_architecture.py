"""Claims of docs/architecture.md about the code."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import ppo_bench
from ppo_bench.configuration.load import load_config

PACKAGE = Path(ppo_bench.__file__).parent
SCREEN = 50
"""Lines."""


@pytest.mark.parametrize("env", ["cartpole", "hopper", "breakout"])
def test_a_rollout_step_of_pytorch_on_envpool_is_followed_through_twelve_files(env: str) -> None:
    config = load_config([f"env={env}", "framework=torch_eager", "backend=envpool", "device=cpu", "ppo.num_steps=64"])
    runner: Any = config.framework.runner(config.training_spec(config.backend.make(config.task)))
    state, _, _ = runner.iterate(runner.init(1))
    _, rollout = runner._envs.begin_rollout(state.envs)
    files = {"runners/host.py"}

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE):
            files.add(str(path.relative_to(PACKAGE)))

    learner = runner._learner.begin_rollout(state.learner, 1, 2)
    with runner._learner.acting_context():
        sys.setprofile(note)
        try:
            learner, actions = runner._learner.act(learner, 0, runner._envs.policy_input(state.envs))
            runner._envs.step(state.envs, rollout, 0, actions)
        finally:
            sys.setprofile(None)
    runner.close()
    assert len(files) <= 12, sorted(files)
    told = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    assert not {name for name in files if f"`{name}`" not in told}


@pytest.mark.parametrize(
    ("file", "functions"),
    [("runners/host.py", ["iterate", "_rollout"]), ("runners/program.py", ["iterate", "_collect"])],
)
def test_an_iteration_fits_a_screen(file: str, functions: list[str]) -> None:
    nodes = [node for node in ast.walk(ast.parse((PACKAGE / file).read_text())) if isinstance(node, ast.FunctionDef)]
    spans = {node.name: (node.lineno, node.end_lineno or 0) for node in nodes if node.name in functions}
    assert max(end for _, end in spans.values()) - min(start for start, _ in spans.values()) < SCREEN
