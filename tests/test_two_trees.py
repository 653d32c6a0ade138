"""Two checkouts compared: a tree is the same as itself, rounding differs from faults, what differs is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tests.source_mutations import ROOT, Mutation, copy_checkout
from tests.two_trees.cases import CASES
from tests.two_trees.lockstep import TOLERANCE, Distance, compare, distance

NOTHING = Distance(0.0, 0.0, 0.0, ())
MLP = next(case for case in CASES if case.name == "mlp" and "framework=torch_eager" in case.words)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this checkout, to be changed."""
    folder = tmp_path_factory.mktemp("trees") / "copy"
    copy_checkout(folder)
    return folder


def with_patch(copy: Path, old: str, new: str) -> Distance:
    """The distance of a case in this checkout from that in a copy with other text."""
    path, text = Mutation("patch", "", old, new, ()).changed_file(copy / "ppo_bench")
    before = path.read_text()
    path.write_text(text)
    try:
        return compare(ROOT, copy, MLP, TOLERANCE)
    finally:
        path.write_text(before)


@pytest.mark.slow
def test_a_tree_trains_as_it_does_itself(copy: Path) -> None:
    assert compare(ROOT, copy, MLP, 0.0) == NOTHING


@pytest.mark.slow
def test_rounding_is_told_from_a_fault(copy: Path) -> None:
    deltas = "rewards + gamma * bootstrap * values[1:] - values[:-1]"
    rounded = with_patch(copy, deltas, "rewards - values[:-1] + gamma * bootstrap * values[1:]")
    assert 0.0 < rounded.parameters < 1e-11
    assert rounded.within(TOLERANCE)
    wrong = with_patch(copy, "centered / (xp.sqrt(variance) + 1e-8)", "centered / (xp.sqrt(1.01 * variance) + 1e-8)")
    assert wrong.parameters > 1e-4
    assert not wrong.within(TOLERANCE)


# --- Files ------------------------------------------------------------------------------------------------------------


def write_run(folder: Path, **changes: Any) -> Path:
    """A run of two checkpoints whose parameters move by 1.0; `changes` are names with other values."""
    arrays = {"params.actor": np.zeros(4), "statistics.seen": np.full(3, 2.0)}
    names = changes.pop("names", {})
    for iteration in (1, 2):
        arrays = {name: np.array(changes.get(name, array)) for name, array in arrays.items()}
        arrays["params.actor"][0] += iteration == 2
        path = folder / "checkpoints" / f"iteration_{iteration:08d}"
        path.mkdir(parents=True)
        saved = {names.get(name, name): array for name, array in arrays.items()}
        safetensors.numpy.save_file(saved, path / "arrays.safetensors")
    metrics = [{"iteration": k, "sps": k / 7, "entropy": changes.get("entropy", 0.5)} for k in (1, 2)]
    episodes = [{"global_step": 8, "return": 3.0, "length": changes.get("length", 8)}]
    for name, table in (("metrics", metrics), ("episodes", episodes)):
        lines = [json.dumps({names.get(key, key): x for key, x in row.items()}) for row in table]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


BOTH = ("iteration_00000001", "iteration_00000002")


@pytest.mark.parametrize(
    ("changes", "expected", "lines"),
    [
        ({}, (0.0, 0.0, 0.0), []),
        ({"params.actor": [0.0, 1e-11, 0.0, 0.0]}, (1e-11, 0.0, 0.0), []),
        (
            {"params.actor": [0.0, 1e-9, 0.0, 0.0]},
            (1e-9, 0.0, 0.0),
            [f"{k}: params.actor differs by 1.0e-09" for k in BOTH],
        ),
        (
            {"statistics.seen": [2.0, 2.0, 2.2]},
            (0.0, 0.2 / 12**0.5, 0.0),
            [f"{k}: statistics.seen differs by 5.8e-02" for k in BOTH],
        ),
        (
            {"statistics.seen": [2.0, 2.0, np.nan]},
            (0.0, np.inf, 0.0),
            [f"{k}: statistics.seen differs by inf" for k in BOTH],
        ),
        ({"entropy": 0.6}, (0.0, 0.0, 0.2), ["metrics.jsonl: entropy differs by 2.0e-01"]),
        ({"length": 9}, (0.0, 0.0, 0.0), ["episodes.jsonl: length differs first in row 0"]),
        ({"entropy": None}, (0.0, 0.0, 0.0), ["metrics.jsonl: entropy is missing in other rows"]),
    ],
)
def test_distances_of_files(
    changes: dict[str, Any], expected: tuple[float, ...], lines: list[str], tmp_path: Path
) -> None:
    found = distance(write_run(tmp_path / "old"), write_run(tmp_path / "new", **changes), TOLERANCE)
    assert found[:3] == pytest.approx(expected, rel=1e-6)
    assert sorted(found.mismatches) == lines
    assert found.within(TOLERANCE) == (not lines)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"params.actor": [0.0, 5e-324, 0.0, 0.0]}, "iteration_00000001: params.actor differs by 2.2e-308"),
        ({"params.actor": [0.0, -0.0, 0.0, 0.0]}, "iteration_00000001: params.actor differs by 2.2e-308"),
        ({"params.actor": [0, 0, 0, 1]}, "iteration_00000001: params.actor is float64[4] and int64[4]"),
        ({"entropy": 0.5 + 2**-53}, "metrics.jsonl: entropy differs by 2.2e-16"),
        ({"names": {"entropy": "policy_entropy"}}, "metrics.jsonl: policy_entropy is new"),
        ({"names": {"statistics.seen": "statistics.flags"}}, "iteration_00000001: statistics.seen is gone"),
    ],
)
def test_a_single_bit_and_a_name_are_found(changes: dict[str, Any], line: str, tmp_path: Path) -> None:
    old = write_run(tmp_path / "old")
    assert distance(old, write_run(tmp_path / "same"), 0.0) == NOTHING
    assert line in distance(old, write_run(tmp_path / "new", **changes), 0.0).mismatches
