"""`make demo-resume`: a killed run ends with the digest of an uninterrupted one, and a difference is reported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training import ROOT

pytestmark = pytest.mark.slow
SHORT = """
import sys, demo_resume
demo_resume.STEPS = 40_000
"""


def run(code: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'launch'}"}
    command = [sys.executable, *code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_digests_are_equal(tmp_path: Path) -> None:
    done = run(["-c", f"{SHORT}sys.exit(demo_resume.main([]))"], tmp_path)
    assert done.returncode == 0, done.stderr
    digests = re.findall(r"^([0-9a-f]{32})  ", done.stdout, re.M)
    assert len(digests) == 2
    assert digests[0] == digests[1]
    assert re.search(r"killed after iteration \d+", done.stdout)
    assert done.stdout.endswith("the same parameters, bit for bit\n")
