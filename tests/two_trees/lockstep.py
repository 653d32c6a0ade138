"""Do two checkouts train the same to within rounding? In float64, free running, for a few iterations of each case."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.two_trees.cases import RENAMED, Case
from tests.two_trees.trees import Arrays, checkpoints, rows, train_both

TOLERANCE = 1e-10
"""Largest distance of parameters in lengths of their movement, and of all else in lengths of itself."""
EXACT_COLUMNS = ("iteration", "global_step", "episodes", "env", "length")
"""Columns of integers. They differ as soon as an action does."""

Renames = Mapping[str, str | None]


class Distance(NamedTuple):
    """How far two runs of one command are apart; all 0.0 if they are the same bit for bit."""

    parameters: float
    """Norm of the difference of all parameters, in lengths of their movement from the first checkpoint to the last."""
    arrays: float
    """Largest distance of another array of a checkpoint, in lengths of the array."""
    metrics: float
    """Largest distance of a metric or return, in units of the column's largest absolute value."""
    mismatches: tuple[str, ...]
    """Rows, names, shapes and integers that differ, a line each."""

    @property
    def within_rounding(self) -> bool:
        """Whether the runs are the same training."""
        return not self.mismatches and max(self[:3]) <= TOLERANCE


def new_name(name: str, renamed: Renames) -> str | None:
    """The name in the new tree of what the old tree calls `name`; None if it has no such thing."""
    for old, new in renamed.items():
        if name == old or name.startswith(f"{old}."):
            return None if new is None else new + name[len(old) :]
    return name


def new_words(words: Sequence[str], renamed: Renames) -> list[str]:
    """The overrides of the new tree that correspond to `words` of the old one."""
    pairs = [(new_name(key, renamed), value) for key, _, value in (word.partition("=") for word in words)]
    return [f"{key}={value}" for key, value in pairs if key is not None]


def distance(old: Path, new: Path, renamed: Renames) -> Distance:
    """The distance of two run folders."""
    before, after = checkpoints(old), checkpoints(new)
    mismatches = [f"checkpoints {sorted(before)} and {sorted(after)}"] if before.keys() != after.keys() else []
    first, *_, last = before.values()
    moved = _length([last[name] - first[name] for name in last if _is_parameter(name)])
    parameters = arrays = 0.0
    for iteration in before.keys() & after.keys():
        pairs, wrong = _paired(before[iteration], after[iteration], renamed)
        mismatches += [f"{iteration}: {line}" for line in wrong]
        gaps = {name: _gap(*pair) for name, pair in pairs.items()}
        of_parameters = math.hypot(*(gap for name, gap in gaps.items() if _is_parameter(name)))
        parameters = max(parameters, _ratio(of_parameters, moved))
        others = [_ratio(gap, _length([pairs[name][0]])) for name, gap in gaps.items() if not _is_parameter(name)]
        arrays = max([arrays, *others])
    metrics = 0.0
    for name in ("metrics", "episodes"):
        gap, wrong = _distance_of_rows(rows(old, name), rows(new, name), renamed)
        metrics = max(metrics, gap)
        mismatches += [f"{name}.jsonl: {line}" for line in wrong]
    return Distance(parameters, arrays, metrics, tuple(mismatches))


def _is_parameter(name: str) -> bool:
    return name.startswith("params.")


def _gap(old: np.ndarray, new: np.ndarray) -> float:
    """Norm of the difference; 0 if the arrays are equal bit for bit, not numbers included."""
    return 0.0 if old.tobytes() == new.tobytes() else _length([np.subtract(old, new, dtype=np.float64)])


def _length(arrays: Sequence[np.ndarray]) -> float:
    """Norm of the concatenated arrays."""
    return math.sqrt(sum(float(np.sum(np.square(np.asarray(array, np.float64)))) for array in arrays))


def _ratio(gap: float, scale: float) -> float:
    """`gap / scale`; infinite if it is not a number, and 1 where the scale alone is 0."""
    if not gap:
        return 0.0
    ratio = gap / scale if scale else 1.0
    return ratio if math.isfinite(ratio) else math.inf


def _paired(old: Arrays, new: Arrays, renamed: Renames) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[str]]:
    """The arrays of both checkpoints by their old names, and what cannot be paired."""
    names = {name: new_name(name, renamed) for name in old}
    wrong = [f"{name} is new" for name in sorted(new.keys() - set(names.values()))]
    pairs = {}
    for name, other in names.items():
        if other is None:
            continue
        if other not in new:
            wrong.append(f"{name} is gone")
        elif new[other].shape != old[name].shape or new[other].dtype != old[name].dtype:
            shapes = [f"{array.dtype}{list(array.shape)}" for array in (old[name], new[other])]
            wrong.append(f"{name} is {shapes[0]} and {shapes[1]}")
        else:
            pairs[name] = old[name], new[other]
    return pairs, wrong


def _distance_of_rows(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]], renamed: Renames
) -> tuple[float, list[str]]:
    """Largest distance of a column of numbers, and what else differs."""
    if len(old) != len(new):
        return 0.0, [f"{len(old)} rows and {len(new)}"]
    names = {name: new_name(name, renamed) for row in old for name in row}
    wrong = [f"{name} is new" for name in sorted({name for row in new for name in row} - set(names.values()))]
    largest = 0.0
    for name, other in names.items():
        if other is None:
            continue
        columns = [[row.get(key) for row in table] for key, table in ((name, old), (other, new))]
        if [x is None for x in columns[0]] != [x is None for x in columns[1]]:
            wrong.append(f"{name} is missing in other rows")
            continue
        mine, theirs = (np.array([x for x in column if x is not None], np.float64) for column in columns)
        if name in EXACT_COLUMNS and (mine != theirs).any():
            wrong.append(f"{name} differs first in row {int(np.flatnonzero(mine != theirs)[0])}")
        elif mine.size:
            largest = max(largest, _ratio(float(np.abs(mine - theirs).max()), float(np.abs(mine).max())))
    return largest, wrong


def compare(old: Path, new: Path, case: Case, renamed: Renames = RENAMED) -> Distance:
    """Run a case in both trees; the largest distances of its runs."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = train_both(old, new, (case.words, new_words(case.words, renamed)), Path(scratch))
        found = [distance(before, after, renamed) for before, after in zip(*folders, strict=True)]
    return Distance(
        max(each.parameters for each in found),
        max(each.arrays for each in found),
        max(each.metrics for each in found),
        tuple(line for each in found for line in each.mismatches),
    )


def lockstep(old: Path, new: Path, cases: Sequence[Case]) -> int:
    """Compare every case in both trees and print a row of each; how many are not the same training."""
    failed = 0
    print("verdict  parameters  arrays   metrics  case", flush=True)
    for case in cases:
        found = compare(old, new, case)
        failed += not found.within_rounding
        numbers = f"{found.parameters:<10.1e}  {found.arrays:<7.1e}  {found.metrics:<7.1e}"
        framework = next(word for word in case.words if word.startswith("framework=")).partition("=")[2]
        print(f"{'same   ' if found.within_rounding else 'DIFFERS'}  {numbers}  {framework}, {case.name}", flush=True)
        for line in found.mismatches[:4]:
            print(f"         {line}", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} cases train the same")
    return failed
