"""Runs of a user-defined algorithm and network, from the command line to the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.commands.query import main as query
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners import checkpoint
from tests.seams import SMALL, ours
from tests.training import timeless

pytestmark = pytest.mark.slow

RUN = ["env=cartpole", "device=cpu", *SMALL, "total_timesteps=768", "checkpoint.every_iterations=4"]


def arrays_of(folder: Path) -> Arrays:
    return checkpoint.load_named(folder).arrays


def test_a_new_metric_is_in_rows_trackers_and_report_and_its_run_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = [*RUN, "tracker=tensorboard", *ours("AveragingMlp"), f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    folder = load_config(words).run_folder
    rows = timeless(folder)
    assert rows[-1]["level_loss"] > 0.0
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert {"losses/level", "charts/transitions", "losses/policy_loss"} <= set(events.Tags()["scalars"])
    assert [e.value for e in events.Scalars("charts/transitions")] == [row["transitions"] for row in rows]
    capsys.readouterr()
    assert query(["select max(transitions) as seen, count(level_loss) as rows from metrics", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"{rows[-1]['transitions']:.0f}" in shown.replace(",", "")
    returns = {}
    for framework in ("torch_eager", "jax_xla"):
        assert evaluate([str(folder), f"framework={framework}", "episodes=4"]) == 0
        written = max((folder / "evaluations").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        returns[framework] = json.loads(written.read_text())["returns"]
    assert returns["torch_eager"] == returns["jax_xla"]
