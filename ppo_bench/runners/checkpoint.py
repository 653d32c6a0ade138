"""Checkpoints: `checkpoints/iteration_<k>/` with `arrays.safetensors` and `state.json`, portable and checked.

Arrays are a runner's `export`, in the neutral layout that every framework restores; `state.json` holds the counters
of the outer loop and the checksums of both. Each is written aside and renamed, so that it is whole or absent.
`checkpoints/best` leads to the one with the highest return. An interruption leaves `checkpoints/snapshot_<k>`, to be
evaluated: a run is not resumed there, since its environments do not restart at that iteration.

An exported folder (`ppo-bench export`) is a run and its checkpoint at once: `model.safetensors` are the arrays, and
`config.json` is the run's run.json with the state below the key `checkpoint`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, sync_folder, write_json, write_safely
from ppo_bench.mathematics.arrays import Arrays

MODEL, CONFIG = "model.safetensors", "config.json"
"""The files of an exported folder that make it one."""


class Checkpoint(NamedTuple):
    """A runner's arrays and the outer loop's counters at the end of an iteration."""

    arrays: Arrays
    loop: dict[str, Any]


class Damaged(Exception):
    """A checkpoint that is not whole, and why."""


class _OtherVersion(Damaged):
    """A checkpoint of another schema version."""


def save(folder: Path, iteration: int, checkpoint: Checkpoint, best: int | None = None) -> Path:
    """Write a checkpoint under `folder`, and remove snapshots. The link `best` leads to that of iteration `best`."""
    final = _write(_folder_of(folder, iteration), iteration, checkpoint)
    if best is not None:
        link_best(folder, best)
    _remove_snapshots(folder)
    return final


def link_best(folder: Path, iteration: int) -> None:
    """Let `best` under `folder` lead to the checkpoint of an iteration."""
    _link(folder / "best", _folder_of(folder, iteration))


def exists(folder: Path, iteration: int) -> bool:
    """Whether there is a checkpoint of an iteration under `folder`, whole or not."""
    return _folder_of(folder, iteration).is_dir()


def save_snapshot(folder: Path, iteration: int, checkpoint: Checkpoint) -> Path:
    """Write what an interruption leaves under `folder`, in place of an earlier one's."""
    _remove_snapshots(folder)
    return _write(folder / f"snapshot_{iteration:08d}", iteration, checkpoint)


def _remove_snapshots(folder: Path) -> None:
    for snapshot in folder.glob("snapshot_*"):
        shutil.rmtree(snapshot)


def _write(final: Path, iteration: int, checkpoint: Checkpoint) -> Path:
    folder = final.parent
    aside = folder / f".{final.name}.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    data = _serialized(checkpoint.arrays)
    state = _state(iteration, checkpoint, data)
    write_safely(aside / "arrays.safetensors", data)
    write_safely(aside / "state.json", json.dumps(state, indent=2, allow_nan=False).encode())
    sync_folder(aside)
    shutil.rmtree(final, ignore_errors=True)
    aside.rename(final)
    sync_folder(folder)
    return final


def _state(iteration: int, checkpoint: Checkpoint, data: bytes) -> dict[str, Any]:
    """What stands beside the serialised arrays `data`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "iteration": iteration,
        "arrays_sha256": _sha256(data),
        "loop_sha256": _sha256(_canonical(checkpoint.loop)),
        "loop": checkpoint.loop,
    }


def write_exported(folder: Path, run: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Write the checkpoint and the run.json of its run into an exported folder."""
    data = _serialized(checkpoint.arrays)
    write_safely(folder / MODEL, data)
    write_json(folder / CONFIG, run | {"checkpoint": _state(checkpoint.loop["iteration"], checkpoint, data)})


def is_exported(folder: Path) -> bool:
    """Whether `ppo-bench export` wrote `folder`."""
    return (folder / MODEL).exists() and (folder / CONFIG).exists()


def run_of(path: Path) -> Path:
    """The folder of the run of a checkpoint that `find` found."""
    return path.resolve() if is_exported(path) else path.resolve().parents[1]


def prune(folder: Path, keep: int, best: int | None = None) -> None:
    """Remove all checkpoints under `folder` but the newest `keep` and that of iteration `best`."""
    for old in _newest_first(folder)[keep:]:
        if best is None or old != _folder_of(folder, best):
            shutil.rmtree(old)


def load_newest(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest whole checkpoint under `folder`; None if none was ever written.

    Damaged ones that are newer are named to `warn` and moved aside. Raises `ConfigError`, and moves nothing, if there
    are only damaged ones.
    """
    found = sorted(folder.glob("iteration_*"))
    damaged: dict[Path, Damaged] = {}
    for path in _newest_first(folder):
        try:
            whole = load(path)
        except _OtherVersion as version:
            raise ConfigError(f"{_of_other_version(path, version)}, or rerun=true") from version
        except Damaged as error:
            damaged[path] = error
            continue
        for newer, reason in damaged.items():
            warn(f"checkpoint {newer} is damaged ({reason}); it is set aside for the one before it")
            aside = newer.with_name(f"{newer.name}.damaged")
            shutil.rmtree(aside, ignore_errors=True)
            newer.rename(aside)
        return whole
    if found:
        reasons = "; ".join(f"{path.name}: {reason}" for path, reason in damaged.items())
        raise ConfigError(f"no checkpoint in {folder} is whole ({reasons}); rerun=true starts the run afresh beside it")
    return None


def newest_iteration(folder: Path) -> int | None:
    """The iteration of the newest checkpoint, whole or not; None if there is none."""
    newest = next(iter(_newest_first(folder)), None)
    return int(newest.name.removeprefix("iteration_")) if newest else None


def load_iteration(folder: Path, iteration: int) -> Checkpoint:
    """The checkpoint of an iteration under `folder`. Raises `ConfigError` if it is not there and whole."""
    return load_named(_folder_of(folder, iteration))


def load(path: Path) -> Checkpoint:
    """The checkpoint at `path`. Raises `Damaged` if it is not whole."""
    try:
        exported = is_exported(path)
        state = json.loads((path / (CONFIG if exported else "state.json")).read_text())
        state = state["checkpoint"] if exported else state
        data = (path / (arrays_file := MODEL if exported else "arrays.safetensors")).read_bytes()
        if state["schema_version"] != SCHEMA_VERSION:
            raise _OtherVersion(state["schema_version"])
        if _sha256(data) != state["arrays_sha256"]:
            raise Damaged(f"the checksum of {arrays_file} does not match")
        if _sha256(_canonical(state["loop"])) != state["loop_sha256"]:
            raise Damaged("the checksum of the counters in state.json does not match")
        return Checkpoint(safetensors.numpy.load(data), dict(state["loop"]))
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error


def find(path: Path, snapshots: bool = False) -> Path:
    """The checkpoint that `path` names: itself, or the newest of a run folder, or with `snapshots` one after that.

    An exported folder is a checkpoint. Raises `ConfigError` without one.
    """
    if path.name.startswith("iteration_") or (path / "state.json").exists() or is_exported(path):
        found = [path] if path.is_dir() else []
    else:
        found = _newest_first(path) or _newest_first(path / "checkpoints")
        if snapshots:
            found = [*path.glob("snapshot_*"), *(path / "checkpoints").glob("snapshot_*"), *found]
    if not found:
        raise ConfigError(f"{path} has no checkpoint: name a run folder or one of its checkpoints/iteration_<k>")
    return found[0]


def load_named(path: Path) -> Checkpoint:
    """The checkpoint that `path` names, see `find`; nothing is moved. Raises `ConfigError` if it is not whole."""
    found = find(path)
    try:
        return load(found)
    except _OtherVersion as version:
        raise ConfigError(_of_other_version(found, version)) from version
    except Damaged as reason:
        raise ConfigError(f"checkpoint {found} is damaged ({reason}): name another one") from reason


def digest(arrays: Arrays) -> str:
    """The SHA-256 of what `save` writes for `arrays`."""
    return _sha256(_serialized(arrays))


def _folder_of(folder: Path, iteration: int) -> Path:
    return folder / f"iteration_{iteration:08d}"


def _link(path: Path, target: Path) -> None:
    """Let `path` lead to `target` beside it, at every moment to the one or to the last."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target.name)
    if path.is_dir() and not path.is_symlink():  # where the run's folder was copied without its links
        shutil.rmtree(path)
    aside.replace(path)


def _serialized(arrays: Arrays) -> bytes:
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def _of_other_version(path: Path, version: _OtherVersion) -> str:
    return f"{path} was written by schema version {version}, this is {SCHEMA_VERSION}: use the ppo_bench that wrote it"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("iteration_*") if path.suffix == ""), reverse=True)
