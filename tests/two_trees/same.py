"""Do two checkouts train the same, bit for bit?"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.two_trees.trees import checkpoints, rows, train_both


def differences(old: Path, new: Path) -> list[str]:
    """Differences of two run folders, a line each."""
    found = []
    for name in ("metrics", "episodes"):
        lines, others = rows(old, name), rows(new, name)
        if lines != others:
            first = next((i for i, pair in enumerate(zip(lines, others, strict=False)) if pair[0] != pair[1]), None)
            found.append(f"{name}.jsonl: {len(lines)} rows and {len(others)}, the first that differs is {first}")
    expected, after = (list(checkpoints(folder).values())[-1] for folder in (old, new))
    for name in sorted(expected.keys() ^ after.keys()):
        found.append(f"{name} is in one checkpoint alone")
    for name in sorted(expected.keys() & after.keys()):
        mine, theirs = expected[name], after[name]
        if mine.dtype != theirs.dtype or mine.shape != theirs.shape or mine.tobytes() != theirs.tobytes():
            gap = np.abs(mine.astype(np.float64) - theirs).max() if mine.shape == theirs.shape else None
            found.append(f"{name}: {mine.dtype}{mine.shape} and {theirs.dtype}{theirs.shape}, largest gap {gap}")
    return found


def same(old: Path, new: Path, commands: Sequence[Sequence[str]]) -> int:
    """Run every command in both trees; how many differ."""
    failed = 0
    for words in commands:
        with tempfile.TemporaryDirectory() as scratch:
            folders = train_both(old, new, (words, words), Path(scratch))
            found = [line for pair in zip(*folders, strict=True) for line in differences(*pair)]
        failed += bool(found)
        print("differs" if found else "same   ", " ".join(words), flush=True)
        for line in found[:6]:
            print(f"        {line}", flush=True)
    print(f"{len(commands) - failed} of {len(commands)} commands leave the same")
    return failed
