"""Folders of runs, whether or not they are there."""

from __future__ import annotations

from pathlib import Path


def choose_folder(folder: Path, rerun: bool) -> Path:
    """`folder`, or with `rerun` the first of `<folder>-rerun<n>`, n = 2, 3, ..., that is not complete.

    Whether or not there is a `folder`, so that the same command goes on with the rerun that it has begun.
    """
    if not rerun:
        return folder
    n = 2
    while ((beside := folder.with_name(f"{folder.name}-rerun{n}")) / "result.json").exists():
        n += 1
    return beside
