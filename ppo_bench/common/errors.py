"""The exceptions whose message is for the user: a single line that says what to change or what was kept."""

from __future__ import annotations

import importlib.util
import signal
from collections.abc import Iterable, Sequence
from difflib import get_close_matches


class ConfigError(ValueError):
    """What was asked for cannot be done; nothing has been started. Ends the program with exit code 2."""


class Failed(Exception):
    """The run cannot go on; what it had saved is kept. Ends the program with exit code 1."""


class Interrupted(Exception):
    """The run was asked to stop, and did, between two iterations. Ends the program with exit code 130."""


def require(module: str, extra: str, purpose: str) -> None:
    """Raise `ConfigError` with the pip command if `module`, which `purpose` needs, is not installed."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        found = False
    if not found:
        raise ConfigError(f"{purpose} needs {module}, which is not installed: pip install 'ppo-bench[{extra}]'")


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of the `known` words that `word` may have been meant for, the nearest first; case does not matter."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in get_close_matches(word.lower(), list(by_lower), n=3)]


def reason(code: int, lines: Sequence[str]) -> str:
    """Why a process failed, in a line: the first of its error, by its exit code and the end of its stderr."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = [line for line in lines if line.strip()]
    for start in reversed(range(len(lines))):
        if lines[start].startswith("Traceback (most recent call last)"):
            raised = [line for line in lines[start + 1 :] if not line[0].isspace()]
            return raised[0].strip() if raised else "Traceback"
    said = [line for line in lines if line.startswith("ppo_bench: ")] or lines
    return said[-1].removeprefix("ppo_bench: ").strip() if said else f"exit code {code}"
