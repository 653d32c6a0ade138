"""Progress messages of a running training."""

from __future__ import annotations

import pytest

from ppo_bench.common import progress
from ppo_bench.common.progress import ProgressDisplay


def test_the_time_left_is_that_of_all_seeds_and_not_told_of_the_first_iterations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four seeds of 1,000 steps each; at 100 steps a second of all together, 700 steps of each take 28 seconds."""
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_SECONDS", 0.0)
    with ProgressDisplay("short", "mine", 1000, runs=4) as display:
        for step in (100, 200, 300):
            display.update(step, lambda: None, 100.0)
        display.update(1000, lambda: 2.5, 100.0)
    lines = [line.removeprefix("ppo_bench: mine  step ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "100 of 1,000  return -  100 SPS",
        "200 of 1,000  return -  100 SPS",
        "300 of 1,000  return -  100 SPS  0:28 left",
        "1,000 of 1,000  return 2.50  100 SPS  0:00 left",
    ]
