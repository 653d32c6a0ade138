"""Checkpoints: `checkpoints/iteration_<k>/` with `arrays.safetensors` and `state.json`, portable and checksummed.

The arrays are a runner's `export`, in the neutral layout that every framework restores. `state.json` has the counters
of the outer loop, and checksums of these and of the arrays. A checkpoint is written to a temporary folder and renamed,
so that it is complete or absent. The link `checkpoints/best` points to the checkpoint with the highest return.

An exported folder (`ppo-bench export`) is a run and its checkpoint in one: `model.safetensors` has the arrays, and
`config.json` is the run's run.json with the content of `state.json` under the key `checkpoint`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from ppo_bench.algorithms.base import LEARNING_RATE_FACTOR
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, sync_folder, write_json, write_safely
from ppo_bench.mathematics.arrays import Arrays

MODEL, CONFIG = "model.safetensors", "config.json"
"""Names of the files that identify an exported folder."""


class Checkpoint(NamedTuple):
    """A runner's arrays and the outer loop's counters at the end of an iteration."""

    arrays: Arrays
    loop: dict[str, Any]

    def as_untrained(self) -> Checkpoint:
        """The same parameters and statistics in a run that has not started: no iterations, no moments of Adam, and the
        learning rate of the configuration."""
        begun = {name for name in self.arrays if name == "iteration" or name.startswith("adam.")}
        arrays = {name: np.zeros_like(array) if name in begun else array for name, array in self.arrays.items()}
        factor = f"statistics.{LEARNING_RATE_FACTOR}"
        arrays |= {factor: np.ones_like(arrays[factor])} if factor in arrays else {}
        return Checkpoint(arrays, self.loop | {"iteration": 0, "global_step": 0})


def save(folder: Path, iteration: int, checkpoint: Checkpoint, best: int | None = None) -> Path:
    """Write a checkpoint under `folder`, and point the link `best` to iteration `best` if given."""
    final = _folder_of(folder, iteration)
    aside = folder / f".{final.name}.tmp"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    data = _serialize(checkpoint.arrays)
    state = _state(iteration, checkpoint, data)
    write_safely(aside / "arrays.safetensors", data)
    write_safely(aside / "state.json", json.dumps(state, indent=2, allow_nan=False).encode())
    sync_folder(aside)
    if final.exists():
        _remove(final)
    aside.rename(final)
    sync_folder(folder)
    if best is not None:
        _link(folder / "best", _folder_of(folder, best))
    return final


def exists(folder: Path, iteration: int) -> bool:
    """Whether `folder` has a checkpoint of an iteration."""
    return _folder_of(folder, iteration).is_dir()


def _state(iteration: int, checkpoint: Checkpoint, data: bytes) -> dict[str, Any]:
    """Content of `state.json` for the serialised arrays `data`."""
    return {
        "schema_version": SCHEMA_VERSION,
        "iteration": iteration,
        "arrays_sha256": _sha256(data),
        "loop": checkpoint.loop,
        "loop_sha256": _sha256(_canonical(checkpoint.loop)),
    }


def write_exported(folder: Path, run: dict[str, Any], checkpoint: Checkpoint) -> None:
    """Write a checkpoint and `run`, the run.json of its run, as an exported folder."""
    data = _serialize(checkpoint.arrays)
    write_safely(folder / MODEL, data)
    write_json(folder / CONFIG, run | {"checkpoint": _state(checkpoint.loop["iteration"], checkpoint, data)})


def is_exported(folder: Path) -> bool:
    """Whether `folder` is an exported folder, as written by `ppo-bench export`."""
    return (folder / MODEL).exists() and (folder / CONFIG).exists()


def run_of(path: Path) -> Path:
    """The run folder of a checkpoint path that `find` returned."""
    return path.resolve() if is_exported(path) else path.resolve().parent.parent


def prune(folder: Path, keep: int, best: int | None = None) -> None:
    """Remove all checkpoints under `folder` except the newest `keep` and the one of iteration `best`."""
    for old in _newest_first(folder)[keep:]:
        if best is None or old != _folder_of(folder, best):
            _remove(old)
    for rest in folder.glob(".iteration_*"):  # of what a kill interrupted
        shutil.rmtree(rest)


def remove_newer_checkpoints(folder: Path, iteration: int, best: int | None) -> None:
    """Remove the checkpoints after an iteration, and point the link `best` to that of iteration `best`, if it exists.

    Rows after them are removed too, so a run could not resume from these checkpoints.
    """
    for path in _newest_first(folder):
        if path > _folder_of(folder, iteration):
            _remove(path)
    if best is not None and exists(folder, best):
        _link(folder / "best", _folder_of(folder, best))
    elif not (folder / "best").exists():
        (folder / "best").unlink(missing_ok=True)


def load_newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint under `folder`; None if there is none. Raises as `load`."""
    newest = _newest_first(folder)
    return load(newest[0]) if newest else None


def newest_iteration(folder: Path) -> int | None:
    """Iteration of the newest checkpoint under `folder`; None if there is none."""
    newest = next(iter(_newest_first(folder)), None)
    return int(newest.name.removeprefix("iteration_")) if newest else None


def load_iteration(folder: Path, iteration: int) -> Checkpoint:
    """The checkpoint of an iteration under `folder`. Raises `ConfigError` if it is missing or damaged."""
    return load_named(_folder_of(folder, iteration))


def load(path: Path) -> Checkpoint:
    """The checkpoint at `path`. Raises `ConfigError` if it is damaged or has another schema version."""
    try:
        exported = is_exported(path)
        state = json.loads((path / (CONFIG if exported else "state.json")).read_text())
        state = state["checkpoint"] if exported else state
        data = (path / (arrays_file := MODEL if exported else "arrays.safetensors")).read_bytes()
        if (version := state["schema_version"]) != SCHEMA_VERSION:
            raise ConfigError(
                f"{path} was written by schema version {version}, this is {SCHEMA_VERSION}: use the ppo_bench that "
                "wrote it"
            )
        if _sha256(data) != state["arrays_sha256"]:
            raise ValueError(f"the checksum of {arrays_file} does not match")
        if _sha256(_canonical(state["loop"])) != state["loop_sha256"]:
            raise ValueError("the checksum of its counters does not match")
        return Checkpoint(safetensors.numpy.load(data), dict(state["loop"]))
    except ConfigError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise ConfigError(
            f"checkpoint {path} is damaged ({error}): remove it to use the one before it, or name another one"
        ) from error


def find(path: Path) -> Path:
    """Path of the checkpoint that `path` denotes: a checkpoint or exported folder itself, or a run folder's newest.

    Raises `ConfigError` if there is no checkpoint.
    """
    if path.name.startswith("iteration_") or (path / "state.json").exists() or is_exported(path):
        found = [path] if path.is_dir() else []
    else:
        found = _newest_first(path) or _newest_first(path / "checkpoints")
    if not found:
        raise ConfigError(f"{path} has no checkpoint: name a run folder or one of its checkpoints/iteration_<k>")
    return found[0]


def load_named(path: Path) -> Checkpoint:
    """The checkpoint that `find` locates for `path`. Raises `ConfigError` if there is none, and as `load`."""
    found = find(path)
    try:
        return load(found)
    except ConfigError:
        if found.exists():
            raise
        return load(find(path))  # its run, which is training, has pruned it


def digest(arrays: Arrays) -> str:
    """SHA-256 of `arrays` as serialised by `save`."""
    return _sha256(_serialize(arrays))


def _folder_of(folder: Path, iteration: int) -> Path:
    return folder / f"iteration_{iteration:08d}"


def _remove(path: Path) -> None:
    """Remove a checkpoint, which is renamed first, so that it is always complete or absent."""
    aside = path.with_name(f".{path.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    shutil.rmtree(aside)


def _link(path: Path, target: Path) -> None:
    """Point the link `path` to `target` in the same folder; an existing link is replaced atomically."""
    aside = path.with_name(f".{path.name}.tmp")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target.name)
    if path.is_dir() and not path.is_symlink():  # a run folder was copied with its links dereferenced
        shutil.rmtree(path)
    aside.replace(path)


def _serialize(arrays: Arrays) -> bytes:
    return safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})


def _canonical(loop: dict[str, Any]) -> bytes:
    return json.dumps(loop, sort_keys=True).encode()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"iteration_{8 * '[0-9]'}"), reverse=True)
