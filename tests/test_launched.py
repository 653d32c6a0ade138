"""Environment variables of a launcher: wrong values are one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.refusals import assert_one_line

TWO = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (TWO | {"MASTER_PORT": "x"}, "MASTER_PORT=x: expected a whole number"),
        (TWO | {"RANK": "2"}, "RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2: expected a rank below"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "set MASTER_ADDR and MASTER_PORT, too"),
    ],
)
def test_a_launchers_variables_that_make_no_sense_are_one_line(
    variables: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    words = ["env=cartpole", "devices=2", "ppo.shards=2", "device=cpu", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 2
    assert_one_line(capfd.readouterr().err, said)
