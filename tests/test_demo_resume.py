"""`make demo-resume`: a killed run ends with the parameters of an uninterrupted one."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training import ENVIRONMENT, ROOT


@pytest.mark.slow
def test_a_killed_run_ends_with_the_same_parameters(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = ENVIRONMENT | {"PATH": path, "STEPS": "40000"}
    demo = subprocess.run(
        [ROOT / "launch" / "demo_resume.sh"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert demo.returncode == 0, demo.stderr
    assert re.search(r"killed after iteration \d+", demo.stdout)
    assert "resuming" in demo.stderr
    assert demo.stdout.endswith("the same parameters, bit for bit\n")
