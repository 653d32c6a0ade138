"""Checkpoints: loaded arrays equal saved ones, and a damaged checkpoint is named."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.common.errors import ConfigError
from ppo_bench.runners.checkpoint import (
    Checkpoint,
    load,
    load_named,
    load_newest,
    prune,
    remove_newer_checkpoints,
    run_of,
    save,
)
from tests.faults import Exploit
from tests.training import flip_a_bit

ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "every_other": np.arange(10, dtype=np.int32)[::2],
    "scalar": np.array(7),
    "mean": np.array(0.1),
    "empty": np.zeros((0, 3), np.float32),
    "flags": np.array([True, False]),
}


def numbered(iteration: int) -> Checkpoint:
    return Checkpoint({"x": np.array([iteration])}, {"iteration": iteration})


def saved(folder: Path, *iterations: int, keep: int = 9) -> Path:
    for iteration in iterations:
        save(folder, iteration, numbered(iteration))
        prune(folder, keep)
    return folder


def loaded_iteration(folder: Path) -> int:
    checkpoint = load_newest(folder)
    assert checkpoint is not None
    assert checkpoint.loop == {"iteration": checkpoint.arrays["x"][0]}
    return int(checkpoint.loop["iteration"])


def put_in_place(path: Path, data: bytes) -> None:
    """Other arrays under a checksum that is theirs."""
    (path / "arrays.safetensors").write_bytes(data)
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | {"arrays_sha256": hashlib.sha256(data).hexdigest()}))


def truncate(path: Path) -> None:
    data = (path / "arrays.safetensors").read_bytes()
    (path / "arrays.safetensors").write_bytes(data[:-4])


def change_state(path: Path, **changes: object) -> None:
    state = json.loads((path / "state.json").read_text())
    (path / "state.json").write_text(json.dumps(state | changes))


def replace_by_a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.touch()


def test_a_checkpoint_whose_removal_is_interrupted_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*args: object, **options: object) -> None:
        raise KeyboardInterrupt

    for remove in (lambda: remove_newer_checkpoints(tmp_path, 50, None), lambda: prune(tmp_path, keep=1)):
        saved(tmp_path, 40, 50, 100)
        monkeypatch.setattr(os, "unlink", interrupt)
        with pytest.raises(KeyboardInterrupt):
            remove()
        monkeypatch.undo()
        for path in tmp_path.glob("iteration_*"):
            load(path)
        prune(tmp_path, keep=9)
        assert not list(tmp_path.glob(".*"))
    assert loaded_iteration(tmp_path) == 100


ARRAYS_DIFFER = "checksum of arrays.safetensors"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped bit": (flip_a_bit, ARRAYS_DIFFER),
    "truncated arrays": (truncate, ARRAYS_DIFFER),
    "missing arrays": (
        lambda path: (path / "arrays.safetensors").rename(path / "elsewhere"),
        "No such file.*/arrays.safetensors",
    ),
    "no safetensors under a right checksum": (
        lambda path: put_in_place(path, b"\0" * 64),
        "deserializing",
    ),
    "a pickle under a right checksum": (
        lambda path: put_in_place(path, pickle.dumps(Exploit(path.parent / "run"))),
        "deserializing",
    ),
    "missing state": (lambda path: (path / "state.json").unlink(), "No such file.*/state.json"),
    "state cut off": (
        lambda path: (path / "state.json").write_text((path / "state.json").read_text()[:40]),
        "line 3 column",
    ),
    "state of another kind": (lambda path: (path / "state.json").write_text("[1, 2]"), "list indices"),
    "state that is no text": (lambda path: (path / "state.json").write_bytes(b"\xff\xfe\0"), "utf-8"),
    "state without its keys": (lambda path: (path / "state.json").write_text("{}"), "schema_version"),
    "other counters": (
        lambda path: (path / "state.json").write_text((path / "state.json").read_text().replace(": {", ': {"x": 1,')),
        "checksum of its counters",
    ),
    "a file in its place": (replace_by_a_file, "Not a directory"),
}


def test_arrays_and_counters_come_back_as_they_were(tmp_path: Path) -> None:
    loop = {"iteration": 3, "wall_seconds": 0.1 + 0.2, "recent_returns": [1.0, 2.5], "nothing": None}
    checkpoint = load(save(tmp_path, 3, Checkpoint(ARRAYS, loop)))
    assert checkpoint.loop == loop
    assert set(checkpoint.arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert_array_equal(checkpoint.arrays[name], array, strict=True, err_msg=name)


def test_a_run_that_begins_from_a_checkpoint_begins_with_its_own_learning_rate() -> None:
    names = ("params.actor", "adam.step", "statistics.learning_rate_factor")
    arrays = Checkpoint({name: np.array(0.25) for name in names}, {"iteration": 3}).as_untrained().arrays
    assert [float(arrays[name]) for name in names] == [0.25, 0.0, 1.0]


def test_without_checkpoints_there_is_nothing_to_load(tmp_path: Path) -> None:
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "missing") is None


def test_the_newest_is_loaded(tmp_path: Path) -> None:
    assert loaded_iteration(saved(tmp_path, 9, 10, 100, 99_999_999)) == 99_999_999


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, 2, 4, 6, 8, 10, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration_00000008", "iteration_00000010"]


def test_the_best_is_kept_beside_the_newest_and_a_link_leads_to_it(tmp_path: Path) -> None:
    names = []
    for iteration, best in ((2, None), (4, 4), (6, 4), (8, 4), (10, 10), (12, 10)):
        save(tmp_path, iteration, numbered(iteration), best)
        prune(tmp_path, keep=2, best=best)
        names.append([int(path.name.removeprefix("iteration_")) for path in sorted(tmp_path.glob("iteration_*"))])
        assert (tmp_path / "best").exists() == (best is not None)
        if best is not None:
            assert load_named(tmp_path / "best").loop == {"iteration": best}
    assert names == [[2], [2, 4], [4, 6], [4, 6, 8], [8, 10], [10, 12]]
    assert loaded_iteration(tmp_path) == 12


def test_a_link_to_the_best_that_was_copied_as_a_folder_is_a_link_again(tmp_path: Path) -> None:
    save(tmp_path, 2, numbered(2), best=2)
    shutil.copytree(tmp_path, tmp_path / "copy")
    save(tmp_path / "copy", 4, numbered(4), best=4)
    assert load_named(tmp_path / "copy" / "best").loop == {"iteration": 4}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_checkpoint_is_named_and_left_where_it_is(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    saved(tmp_path, 1, 2)
    damaged = tmp_path / "iteration_00000002"
    damage(damaged)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=rf"{damaged} is damaged \(.*{reason}.*\): remove it to use the one before"):
        load_newest(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_was_being_written_when_the_machine_stopped_is_never_loaded(tmp_path: Path) -> None:
    saved(tmp_path, 1, 2)
    (tmp_path / "iteration_00000002").rename(tmp_path / ".iteration_00000002.tmp")
    assert loaded_iteration(tmp_path) == 1
    shutil.rmtree(tmp_path / "iteration_00000001")
    assert load_newest(tmp_path) is None


def test_a_checkpoint_may_lie_below_the_root_of_the_file_system() -> None:
    assert run_of(Path("/iteration_00000001")) == Path("/")


def test_what_was_being_written_when_the_machine_stopped_is_written_anew(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    half = tmp_path / ".iteration_00000002.tmp"
    half.mkdir()
    (half / "leftover").touch()
    assert loaded_iteration(saved(tmp_path, 2)) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["iteration_00000001", "iteration_00000002"]
    assert sorted(path.name for path in (tmp_path / "iteration_00000002").iterdir()) == [
        "arrays.safetensors",
        "state.json",
    ]


def test_a_checkpoint_of_another_version_is_refused_and_left_where_it_is(tmp_path: Path) -> None:
    saved(tmp_path, 1)
    path = saved(tmp_path, 2) / "iteration_00000002"
    change_state(path, schema_version=99)
    with pytest.raises(ConfigError, match="written by schema version 99, this is 1"):
        load_newest(tmp_path)
    assert path.exists()
