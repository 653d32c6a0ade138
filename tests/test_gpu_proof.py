"""`make gpu-proof`, rehearsed on a CPU: its first part, and the continuation of an earlier call."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_proof import Proof, ran
from tests.gpu_proof import Unshown as NotShown

pytestmark = pytest.mark.slow


def proof(out: Path) -> tuple[int, str, list[dict[str, Any]]]:
    command = [sys.executable, "-m", "tests.gpu_proof", "--device", "cpu", "--part", "same", "--out", str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, json.loads((out / "gpu-proof.json").read_text())["checks"]


def test_the_first_part_is_rehearsed_and_goes_on(tmp_path: Path) -> None:
    code, shown, rows = proof(tmp_path)
    own = [row for row in rows if row["part"] == "same"]
    assert [row["came of it"] for row in own] == ["shown"] * len(own), shown
    assert code == 0
    assert {row["came of it"] for row in rows if row["part"] != "same"} == {"not made"}
    assert all(each["differing_actions"] == 0 for row in own[1:] for each in row["figures"].values())
    # Run again, it makes what is missing alone; and names what fails without stopping the rest.
    (tmp_path / "cpu" / "same" / "CPU_against_GPU_CartPole_float64.json").unlink()
    _, shown, again = proof(tmp_path)
    assert shown.count(" ... ") == 1
    assert [row["came of it"] for row in again] == [row["came of it"] for row in rows]


def test_every_part_has_checks_with_names_of_their_own() -> None:
    for device, few in (("cuda", False), ("cpu", True)):
        parts = Proof(device, few).parts()
        names = [check.name for checks in parts.values() for check in checks]
        assert len(set(names)) == len(names) > 20
        assert list(parts) == ["same", "speed", "resume", "ladders", "breakout"]


def test_a_command_that_fails_is_named_by_its_last_line() -> None:
    with pytest.raises(NotShown, match="exit code 2: ppo_bench: there is no key seeed; did you mean seed"):
        ran(["-m", "ppo_bench", "seeed=1"])
