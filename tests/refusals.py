"""Checks of the one line that a command says when it refuses its input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ppo_bench.common.cli import exit_code


def assert_one_line(error: str, fragment: str) -> None:
    """Failure unless `error`, all of stderr, is one line of ppo_bench that contains `fragment`."""
    assert error.startswith("ppo_bench: ")
    assert error.endswith("\n")
    assert error.count("\n") == 1
    assert fragment in error.removeprefix("ppo_bench: ")
    assert "Traceback" not in error


def assert_refused(
    main: Callable[[list[str]], int], words: Sequence[str], fragment: str, capture: pytest.CaptureFixture[str]
) -> str:
    """Failure unless a command ends with exit code 2 and prints only one line with `fragment`, which is returned."""
    capture.readouterr()
    assert exit_code(main, [*words]) == 2
    printed = capture.readouterr()
    assert printed.out == ""
    assert_one_line(printed.err, fragment)
    return printed.err


def assert_untrained(folder: Path) -> None:
    """A folder has no files: what Hydra wrote before environment and device were tried is removed."""
    assert [path for path in folder.rglob("*") if path.is_file()] == []
