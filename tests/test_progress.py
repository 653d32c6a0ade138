"""Progress messages of a running training."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

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


def test_a_terminal_of_80_columns_shows_name_bar_steps_return_speed_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(progress, "LIVE_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(progress, "Console", lambda stderr: Console(file=screen, force_terminal=True, width=80))
    with ProgressDisplay("surround_two_players_or_more", "none of it", 20_000_000) as display:
        for step in (4_096, 86_016, 12_345_678):
            display.update(step, lambda: -12_345.67, 12_345.0)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue()).replace("\r", "\n").rstrip().splitlines()[-1]
    assert len(last) <= 80
    assert re.fullmatch(
        r"surround_two_player\N{HORIZONTAL ELLIPSIS} \S+ 12\.3M of 20M  return -12345\.67  12,345 SPS  10:20 left", last
    )
