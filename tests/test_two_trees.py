"""Two checkouts compared: a tree is the same as itself, rounding differs from faults, renamed things are paired."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

from tests.source_mutations import ROOT, Mutation, copy_checkout
from tests.two_trees.cases import CASES
from tests.two_trees.lockstep import Distance, compare, distance, new_words
from tests.two_trees.same import differences

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
        return compare(ROOT, copy, MLP)
    finally:
        path.write_text(before)


@pytest.mark.slow
def test_a_tree_trains_as_it_does_itself(copy: Path) -> None:
    assert compare(ROOT, copy, MLP) == NOTHING


@pytest.mark.slow
def test_rounding_is_told_from_a_fault(copy: Path) -> None:
    deltas = "rewards + gamma * bootstrap * values[1:] - values[:-1]"
    rounded = with_patch(copy, deltas, "rewards - values[:-1] + gamma * bootstrap * values[1:]")
    assert 0.0 < rounded.parameters < 1e-11
    assert rounded.within_rounding
    wrong = with_patch(copy, "centered / (xp.sqrt(variance) + 1e-8)", "centered / (xp.sqrt(1.01 * variance) + 1e-8)")
    assert wrong.parameters > 1e-4
    assert not wrong.within_rounding


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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, NOTHING),
        ({"params.actor": [0.0, 1e-9, 0.0, 0.0]}, Distance(1e-9, 0.0, 0.0, ())),
        ({"statistics.seen": [2.0, 2.0, 2.2]}, Distance(0.0, 0.2 / 12**0.5, 0.0, ())),
        ({"entropy": 0.6}, Distance(0.0, 0.0, 0.2, ())),
        ({"length": 9}, Distance(0.0, 0.0, 0.0, ("episodes.jsonl: length differs first in row 0",))),
        ({"entropy": None}, Distance(0.0, 0.0, 0.0, ("metrics.jsonl: entropy is missing in other rows",))),
        ({"statistics.seen": [2.0, 2.0, np.nan]}, Distance(0.0, np.inf, 0.0, ())),
    ],
)
def test_distances_of_files(changes: dict[str, Any], expected: Distance, tmp_path: Path) -> None:
    found = distance(write_run(tmp_path / "old"), write_run(tmp_path / "new", **changes), {})
    assert found[:3] == pytest.approx(expected[:3], rel=1e-6)
    assert found.mismatches == expected.mismatches
    assert found.within_rounding == (expected == NOTHING)


def test_names_of_the_new_tree_are_brought_along(tmp_path: Path) -> None:
    names = {"statistics.seen": "statistics.flags", "entropy": "policy_entropy", "length": "episode_length"}
    old, new = write_run(tmp_path / "old"), write_run(tmp_path / "new", names=names)
    assert distance(old, new, names) == NOTHING
    lines = distance(old, new, {}).mismatches
    assert "iteration_00000001: statistics.seen is gone" in lines
    assert "iteration_00000001: statistics.flags is new" in lines
    assert "metrics.jsonl: policy_entropy is new" in lines
    without = {name: value for name, value in names.items() if name != "length"} | {"length": None}
    assert distance(old, new, without).mismatches == ("episodes.jsonl: episode_length is new",)
    words = ["ppo.num_envs=4", "opponents.pool_size=2", "env=cartpole"]
    assert new_words(words, {"opponents": None, "ppo.num_envs": "env.count"}) == ["env.count=4", "env=cartpole"]


def test_what_differs_bit_for_bit_is_named(tmp_path: Path) -> None:
    old = write_run(tmp_path / "old")
    assert differences(old, write_run(tmp_path / "same")) == []
    names = {"statistics.seen": "statistics.flags"}
    assert differences(
        old, write_run(tmp_path / "new", names=names, entropy=0.6, **{"params.actor": [0, 0, 0, 1]})
    ) == [
        "metrics.jsonl: 2 rows and 2, the first that differs is 0",
        "statistics.flags is in one checkpoint alone",
        "statistics.seen is in one checkpoint alone",
        "params.actor: float64(4,) and int64(4,), largest gap 1.0",
    ]
