"""Names of run folders, existing or not."""

from __future__ import annotations

from pathlib import Path


def choose_folder(folder: Path, rerun: bool) -> Path:
    """`folder`, or with `rerun` the first of `<folder>-rerun<n>`, n = 2, 3, ..., that is not complete.

    The result does not depend on whether `folder` exists, so that the same command resumes the rerun that it started.
    """
    if not rerun:
        return folder
    n = 2
    while ((beside := folder.with_name(f"{folder.name}-rerun{n}")) / "result.json").exists():
        n += 1
    return beside
