"""Digests of the user's own modules in run.json, and the warning that they have changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from ppo_bench.runs.provenance import provenance
from tests.training import ENVIRONMENT

OWN = """
from dataclasses import dataclass
from ppo_bench.algorithms.ppo import Ppo

@dataclass(frozen=True)
class Mine(Ppo):
    pass
"""
WORDS = ["algorithm._target_=nets.Mine", "device=cpu", "checkpoint.every_iterations=2", "outputs=o"]


def trained(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = (
        ENVIRONMENT | variables | {"PYTHONPATH": os.pathsep.join([str(folder), ENVIRONMENT.get("PYTHONPATH", "")])}
    )
    command = [sys.executable, "-m", "ppo_bench", *WORDS, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)


@pytest.mark.slow
def test_a_run_says_if_the_users_own_code_has_changed(tmp_path: Path) -> None:
    """A module that no name of the configuration leads to; others belong to the run's identity (test_own_code.py)."""
    (tmp_path / "nets.py").write_text(f"import importlib\nimportlib.import_module('late')\n{OWN}")
    (tmp_path / "late.py").touch()
    folder = tmp_path / trained(tmp_path, "total_timesteps=1024").stdout.strip()
    own_code = json.loads((folder / "run.json").read_text())["own_code"]
    assert list(own_code) == ["late", "nets"]  # no package, nothing of ours
    assert "the code of" not in trained(tmp_path, "total_timesteps=1024").stderr
    (tmp_path / "late.py").write_text("# a further thought\n")
    again = trained(tmp_path, "total_timesteps=1024").stderr
    assert "warning: not what the run started with: the code of late" in again


@pytest.mark.slow
def test_a_run_that_goes_on_under_other_variables_of_a_library_says_so(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(OWN)
    words = ["total_timesteps=1024", "framework=torch_eager"]
    folder = tmp_path / trained(tmp_path, *words, ATEN_CPU_CAPABILITY="default").stdout.strip()
    recorded = json.loads((folder / "run.json").read_text())["variables"]
    assert recorded["ATEN_CPU_CAPABILITY"] == "default"
    (folder / "result.json").unlink()  # as if it had not finished
    same = trained(tmp_path, *words, ATEN_CPU_CAPABILITY="default", TORCHINDUCTOR_CACHE_DIR=str(tmp_path)).stderr
    assert "not what the run started with" not in same
    (folder / "result.json").unlink()
    said = trained(tmp_path, *words, XLA_FLAGS="--xla_cpu_enable_fast_math=true").stderr
    assert "not what the run started with: XLA_FLAGS: none -> --xla_cpu_enable_fast_math=true" in said
    assert "ATEN_CPU_CAPABILITY: default -> none" in said


def test_the_packages_of_what_a_configuration_names_are_recorded() -> None:
    versions = provenance(["supersuit.frame_stack_v1", "ppo_bench.algorithms.ppo.Ppo", "nowhere.Net"])["versions"]
    assert versions["SuperSuit"] == metadata.version("supersuit")
    assert versions.keys() - provenance()["versions"].keys() == {"SuperSuit"}
