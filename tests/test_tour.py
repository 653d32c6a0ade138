"""Every kind of run that a new user tries, one after the other, as in tests/tour.sh."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training import ROOT


@pytest.mark.slow
def test_every_kind_of_run_goes_well(tmp_path: Path) -> None:
    script = [str(ROOT / "tests" / "tour.sh"), sys.executable, str(tmp_path / "outputs")]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(script, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert done.stdout.endswith("== all of it went well\n")
    said = done.stdout + done.stderr
    assert "Traceback" not in said
    for words in ("job 3 of 3: done", "the frameworks do the same", "keeps the contract"):
        assert words in said
