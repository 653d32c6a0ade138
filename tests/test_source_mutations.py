"""The faults of source_mutations.yaml fit the source as it stands, and tests catch them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_mutations import ROOT, Mutation, copy_checkout, load_mutations

MUTATIONS = load_mutations()
each_mutation = pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)


@each_mutation
def test_a_fault_fits_the_source(mutation: Mutation) -> None:
    path, text = mutation.changed_file(ROOT / "ppo_bench")
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(path.read_text(encoding="utf-8")))
    for name in mutation.tests:
        assert (ROOT / "tests" / f"test_{name}.py").exists(), name


@pytest.mark.skipif("MUTATIONS" not in os.environ, reason="MUTATIONS=1 puts every fault into a copy of the checkout")
@each_mutation
def test_a_fault_is_caught(mutation: Mutation, tmp_path: Path) -> None:
    copy_checkout(tmp_path)
    path, text = mutation.changed_file(tmp_path / "ppo_bench")
    path.write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_WAIT_POLICY": "passive", "PYTEST_ADDOPTS": ""}
    files = [f"tests/test_{name}.py" for name in mutation.tests]
    ended = subprocess.run(
        [*command, *files], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1, f"{mutation.fault}: {ended.stdout}{ended.stderr}"  # 1: a test has failed
