"""Check of the one line that a command says when it refuses its input."""

from __future__ import annotations

from pathlib import Path


def assert_one_line(error: str, fragment: str) -> None:
    """Failure unless `error`, all of stderr, is one line of ppo_bench that contains `fragment`."""
    assert error.startswith("ppo_bench: ")
    assert error.endswith("\n")
    assert error.count("\n") == 1
    assert fragment in error.removeprefix("ppo_bench: ")
    assert "Traceback" not in error


def assert_untrained(folder: Path) -> None:
    """A folder has no files: what Hydra wrote before environment and device were tried is removed."""
    assert [path for path in folder.rglob("*") if path.is_file()] == []
