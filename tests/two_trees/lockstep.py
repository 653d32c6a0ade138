"""Do two checkouts train the same, bit for bit or to within rounding? Free running, a few iterations of each case."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tests.two_trees.cases import Case
from tests.two_trees.trees import Arrays, checkpoints, rows, train_both

TOLERANCE = 1e-10
"""Largest distance of parameters in lengths of their movement, and of all else in lengths of itself."""
EXACT_COLUMNS = ("iteration", "global_step", "episodes", "env", "length")
"""Columns of integers. They differ as soon as an action does."""


class Distance(NamedTuple):
    """How far two runs of one command are apart; all 0.0 if they are the same bit for bit."""

    parameters: float
    """Norm of the difference of all parameters, in lengths of their movement from the first checkpoint to the last."""
    arrays: float
    """Largest distance of another array of a checkpoint, in lengths of the array."""
    metrics: float
    """Largest distance of a metric or return, in units of the column's largest absolute value."""
    mismatches: tuple[str, ...]
    """What differs by more than the tolerance, and rows, names, shapes and integers that differ, a line each."""

    def within(self, tolerance: float) -> bool:
        """Whether the runs are the same training."""
        return not self.mismatches and max(self[:3]) <= tolerance


def distance(old: Path, new: Path, tolerance: float) -> Distance:
    """The distance of two run folders."""
    before, after = checkpoints(old), checkpoints(new)
    mismatches = [f"checkpoints {sorted(before)} and {sorted(after)}"] if before.keys() != after.keys() else []
    first, *_, last = before.values()
    moved = _length([last[name] - first[name] for name in last if _is_parameter(name)])
    parameters = arrays = metrics = 0.0
    for iteration in before.keys() & after.keys():
        pairs, wrong = _paired(before[iteration], after[iteration])
        gaps = {name: _gap(*pair) for name, pair in pairs.items()}
        parameters = max(parameters, _ratio(math.hypot(*(gaps[name] for name in gaps if _is_parameter(name))), moved))
        ratios = {
            name: _ratio(gap, moved if _is_parameter(name) else _length([pairs[name][0]])) for name, gap in gaps.items()
        }
        arrays = max([arrays, *(ratio for name, ratio in ratios.items() if not _is_parameter(name))])
        mismatches += [f"{iteration}: {line}" for line in (*wrong, *_above(ratios, tolerance))]
    for name in ("metrics", "episodes"):
        ratios, wrong = _distances_of_rows(rows(old, name), rows(new, name))
        metrics = max([metrics, *ratios.values()])
        mismatches += [f"{name}.jsonl: {line}" for line in (*wrong, *_above(ratios, tolerance))]
    return Distance(parameters, arrays, metrics, tuple(mismatches))


def _above(ratios: Mapping[str, float], tolerance: float) -> list[str]:
    return [f"{name} differs by {ratio:.1e}" for name, ratio in ratios.items() if ratio > tolerance]


def _is_parameter(name: str) -> bool:
    return name.startswith("params.")


def _gap(old: np.ndarray, new: np.ndarray) -> float:
    """Norm of the difference; 0 only if the arrays are equal bit for bit, not numbers included."""
    if old.tobytes() == new.tobytes():
        return 0.0
    return _length([np.subtract(old, new, dtype=np.float64)]) or sys.float_info.min


def _length(arrays: Sequence[np.ndarray]) -> float:
    """Norm of the concatenated arrays."""
    return math.sqrt(sum(float(np.sum(np.square(np.asarray(array, np.float64)))) for array in arrays))


def _ratio(gap: float, scale: float) -> float:
    """`gap / scale`; infinite if it is not a number, and 1 where the scale alone is 0."""
    if not gap:
        return 0.0
    ratio = gap / scale if scale else 1.0
    return ratio if math.isfinite(ratio) else math.inf


def _paired(old: Arrays, new: Arrays) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], list[str]]:
    """The arrays of both checkpoints by their names, and what cannot be paired."""
    wrong = [f"{name} is new" for name in sorted(new.keys() - old.keys())]
    pairs = {}
    for name, array in old.items():
        if name not in new:
            wrong.append(f"{name} is gone")
        elif new[name].shape != array.shape or new[name].dtype != array.dtype:
            shapes = [f"{each.dtype}{list(each.shape)}" for each in (array, new[name])]
            wrong.append(f"{name} is {shapes[0]} and {shapes[1]}")
        else:
            pairs[name] = array, new[name]
    return pairs, wrong


def _distances_of_rows(
    old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, float], list[str]]:
    """The largest distance of each column of numbers, and what else differs."""
    if len(old) != len(new):
        return {}, [f"{len(old)} rows and {len(new)}"]
    names = {name: None for row in old for name in row}
    wrong = [f"{name} is new" for name in sorted({name for row in new for name in row} - names.keys())]
    ratios = {}
    for name in names:
        columns = [[row.get(name) for row in table] for table in (old, new)]
        if [x is None for x in columns[0]] != [x is None for x in columns[1]]:
            wrong.append(f"{name} is missing in other rows")
            continue
        mine, theirs = (np.array([x for x in column if x is not None], np.float64) for column in columns)
        if name in EXACT_COLUMNS and (mine != theirs).any():
            wrong.append(f"{name} differs first in row {int(np.flatnonzero(mine != theirs)[0])}")
        elif mine.size:
            ratios[name] = _ratio(float(np.abs(mine - theirs).max()), float(np.abs(mine).max()))
    return ratios, wrong


def compare(old: Path, new: Path, case: Case, tolerance: float) -> Distance:
    """Run a case in both trees; the largest distances of its runs. With tolerance 0, names of folders are compared."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = train_both(old, new, case.words, Path(scratch))
        found = [distance(before, after, tolerance) for before, after in zip(*folders, strict=True)]
    mismatches = [line for each in found for line in each.mismatches]
    for mine, theirs in zip(*folders, strict=True):
        if tolerance == 0.0 and mine.parts[-2:] != theirs.parts[-2:]:
            mismatches.append(f"the folder {'/'.join(mine.parts[-2:])} is {'/'.join(theirs.parts[-2:])}")
    return Distance(
        max(each.parameters for each in found),
        max(each.arrays for each in found),
        max(each.metrics for each in found),
        tuple(mismatches),
    )


def lockstep(old: Path, new: Path, cases: Sequence[Case], tolerance: float) -> int:
    """Compare every case in both trees and print a row of each; how many are not the same training."""
    failed = 0
    print("verdict  parameters  arrays   metrics  case", flush=True)
    for case in cases:
        found = compare(old, new, case, tolerance)
        same = found.within(tolerance)
        failed += not same
        numbers = f"{found.parameters:<10.1e}  {found.arrays:<7.1e}  {found.metrics:<7.1e}"
        framework = case.words[0].partition("=")[2]
        print(f"{'same   ' if same else 'DIFFERS'}  {numbers}  {framework}, {case.name}", flush=True)
        for line in found.mismatches[:6]:
            print(f"         {line}", flush=True)
    print(f"{len(cases) - failed} of {len(cases)} cases train the same")
    return failed
