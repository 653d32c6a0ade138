"""The files of a run: complete or absent, without NaN, truncated to a checkpoint, never overwritten."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import math
import os
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.common.errors import ConfigError, FailedRuns
from ppo_bench.common.files import read_json, resolve_folders, write_json
from ppo_bench.common.rows import TAIL_BYTES, FilePosition, Rows, check_rows, last_rows
from ppo_bench.runs.loop_state import LoopState
from ppo_bench.runs.results import error_of, is_in_use, lock_run_folder, speeds


def test_a_json_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    value = {"text": "ü", "number": 0.1, "nothing": None, "nested": {"list": [1, 2]}}
    write_json(tmp_path / "x.json", value)
    assert read_json(tmp_path / "x.json") == value


def test_numbers_that_do_not_exist_become_null_at_every_depth(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": math.nan, "b": {"c": math.inf, "d": {"e": -math.inf, "f": 1.5}}})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": {"c": None, "d": {"e": None, "f": 1.5}}}


def test_a_failing_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    before = (tmp_path / "x.json").read_bytes()
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": 2, "b": object()})
    assert (tmp_path / "x.json").read_bytes() == before
    write_json(tmp_path / "x.json", {"a": 3})
    assert read_json(tmp_path / "x.json") == {"a": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null", b"\xff\xfe"], ids=repr)
def test_a_damaged_json_file_is_named(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigError, match=r"result\.json is damaged .*rerun=true"):
        read_json(path)


def test_rows_are_json_lines_without_nan(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "x.jsonl", FilePosition())
    rows.add([{"a": 1, "b": math.nan}, {"a": 2, "b": 0.5}])
    rows.add([])
    rows.add([{"a": 3, "b": -math.inf}])
    rows.close()
    lines = (tmp_path / "x.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"a": 1, "b": None}, {"a": 2, "b": 0.5}, {"a": 3, "b": None}]


def test_rows_wait_until_they_are_written_and_are_with_the_operating_system_then(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "x.jsonl", FilePosition())
    rows.add([{"a": 1}])
    assert (tmp_path / "x.jsonl").read_text() == ""
    rows.write()
    assert (tmp_path / "x.jsonl").read_text() == '{"a":1}\n'
    assert rows.mark().length_bytes == len('{"a":1}\n')
    rows.close()


def test_rows_are_cut_back_to_the_length_of_a_checkpoint_and_go_on_there(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first = Rows(path, FilePosition())
    first.add([{"a": 1}])
    kept = first.mark()
    first.add([{"a": "lost"}])
    first.close()
    path.write_text(path.read_text() + '{"a": "half a l')
    second = Rows(path, kept)
    assert second.mark() == kept
    second.add([{"a": 2}])
    second.close()
    assert path.read_text() == '{"a":1}\n{"a":2}\n'


def test_a_run_keeps_its_folder_unless_a_rerun_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "seed1"
    assert resolve_folders([folder], rerun=False) == [folder]
    assert resolve_folders([folder], rerun=True) == [tmp_path / "seed1-rerun2"], (
        "resumed whether or not there is a first"
    )
    folder.mkdir()
    assert resolve_folders([folder], rerun=False) == [folder]
    assert resolve_folders([folder], rerun=True) == [tmp_path / "seed1-rerun2"]
    (tmp_path / "seed1-rerun2").mkdir()
    assert resolve_folders([folder], rerun=True) == [tmp_path / "seed1-rerun2"], "an unfinished rerun is resumed"
    (tmp_path / "seed1-rerun2" / "result.json").touch()
    assert resolve_folders([folder], rerun=True) == [tmp_path / "seed1-rerun3"]
    both = [folder, tmp_path / "seed2"]
    assert resolve_folders(both, rerun=True) == [tmp_path / "seed1-rerun2", tmp_path / "seed2-rerun2"], (
        "not all complete"
    )


def test_a_failure_is_kept_by_the_runs_that_have_failed(tmp_path: Path) -> None:
    folders = [tmp_path / f"seed{k}" for k in range(3)]
    with (
        suppress(FailedRuns),
        lock_run_folder(folders[0], 0),
        lock_run_folder(folders[1], 1),
        lock_run_folder(folders[2], 2),
    ):
        failure = FailedRuns({1: "why 1", 2: "why 2"})
        raise pickle.loads(pickle.dumps(failure))  # as a process of several reports it to the first
    assert [error_of(folder) for folder in folders] == [None, "why 1", "why 2"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "a" / "seed1").mkdir(parents=True)
    (tmp_path / "a" / "seed1" / "checkpoints").touch()
    with (
        pytest.raises(ConfigError, match=r"cannot write to .*seed1.*: .*outputs="),
        lock_run_folder(tmp_path / "a" / "seed1"),
    ):
        pass


def test_a_folder_that_another_run_holds_is_refused_until_that_one_ends(tmp_path: Path) -> None:
    refused = pytest.raises(ConfigError, match="is being trained by another process")
    with lock_run_folder(tmp_path), refused, lock_run_folder(tmp_path):
        pass
    with lock_run_folder(tmp_path):
        pass


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(descriptor: int, kind: int) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", flock)
    with (
        pytest.raises(ConfigError, match=f"cannot lock {tmp_path}: Function not implemented"),
        lock_run_folder(tmp_path),
    ):
        pass
    assert not is_in_use(tmp_path)


def test_rows_that_a_checkpoint_counts_and_the_file_lacks_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(ConfigError, match=r"x\.jsonl has fewer rows than its checkpoint recorded"):
        check_rows(tmp_path / "x.jsonl", FilePosition(10, hashlib.sha256(b'{"a": 1}\n{').hexdigest()))
    assert (tmp_path / "x.jsonl").read_text() == '{"a": 1}\n'


def test_rows_that_are_not_what_the_checkpoint_counts_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    with pytest.raises(ConfigError, match=r"x\.jsonl is damaged: its rows differ"):
        check_rows(tmp_path / "x.jsonl", FilePosition(9, hashlib.sha256(b'{"a": 3}\n').hexdigest()))
    assert (tmp_path / "x.jsonl").read_text() == '{"a": 1}\n{"a": 2}\n'


def test_the_steady_speed_is_that_of_the_median_iteration(tmp_path: Path) -> None:
    seconds = 8.0, 1.6, 4.0, 0.1, 2.0
    rows = [{"iteration": k, "global_step": 800 * k, "sps": 800 / s} for k, s in enumerate(seconds, 1)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steady, starting = speeds(tmp_path / "metrics.jsonl")
    np.testing.assert_allclose([steady, *starting], [400.0, 6.0 + 2.0])


def test_the_last_rows_are_as_many_as_asked_for_however_long_they_are(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    assert last_rows(path, 2) == []
    path.write_text("".join(json.dumps({"a": k, "b": "-" * TAIL_BYTES}) + "\n" for k in range(5)) + '{"a"')
    for count, expected in ((1, [4]), (3, [2, 3, 4]), (9, [0, 1, 2, 3, 4])):
        assert [row["a"] for row in last_rows(path, count)] == expected


def test_a_resumed_run_compiles_again(tmp_path: Path) -> None:
    seconds = [8.0, 2.0, 2.0, 2.0, 2.0, 2.0, 5.0, 2.0, 2.0, 3.0]  # the last is no start
    rows = [{"iteration": k, "global_step": 800 * k, "sps": 800 / s} for k, s in enumerate(seconds, 1)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for resumed_at, expected in (([6], [6.0, 3.0]), ([1, 6, 6], [6.0, 0.0, 0.0, 3.0])):
        steady, starting = speeds(tmp_path / "metrics.jsonl", resumed_at)
        np.testing.assert_allclose([steady, *starting], [400.0, *expected])


def test_a_lock_file_that_a_refused_run_has_removed_locks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process opens the lock file of a new folder before the run there is refused, and locks it after that."""
    taken, flock = list[int](), fcntl.flock

    def remove_and_lock(descriptor: int, kind: int) -> None:
        if not taken:
            (tmp_path / ".lock").unlink()
        flock(descriptor, kind)
        taken.append(descriptor)

    monkeypatch.setattr("fcntl.flock", remove_and_lock)
    with lock_run_folder(tmp_path):
        assert len(taken) == 2
        assert is_in_use(tmp_path)


def test_one_lucky_episode_is_no_best() -> None:
    loop = LoopState(iteration=1, recent_returns=[1.0])
    loop.update_best()
    assert (loop.best_iteration, loop.best_return) == (1, 1.0)
    for iteration, returns in ((2, [1.0, 0.2]), (3, [0.9] * 100), (4, [0.8] * 100), (5, [0.9] * 100)):
        loop.iteration, loop.recent_returns = iteration, returns
        loop.update_best()
    assert loop.best_iteration == 5
    assert loop.best_return == pytest.approx(0.9)
