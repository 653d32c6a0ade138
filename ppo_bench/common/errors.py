"""Exceptions whose message is printed to the user: one line that says what to change, or what was saved."""

from __future__ import annotations

import importlib.util
import signal
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches


class ConfigError(ValueError):
    """An error in what the user asked for, found before anything has started. The program ends with exit code 2."""


class RunError(Exception):
    """A failure of a run or a command in progress; saved files are kept. The program ends with exit code 1."""


class FailedRuns(RunError):
    """The failure of some of the runs that a program trains; the others can go on without them."""

    def __init__(self, reasons: Mapping[int, str]) -> None:
        """`reasons` has one line for each of them, by its position among the runs of the program."""
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons

    def __reduce__(self) -> tuple[type[FailedRuns], tuple[Mapping[int, str]]]:
        """Constructor and argument for pickle: `torch.multiprocessing` sends errors to the parent process."""
        return FailedRuns, (self.reasons,)


class RankLostError(RunError):
    """The loss of another machine that shares a training. The program ends with exit code 75: try again."""


class RunInterrupted(Exception):
    """A stop on request, by a signal, between two iterations. The program ends with exit code 130."""


def require(module: str, extra: str, purpose: str) -> None:
    """Raise `ConfigError` if `module`, which `purpose` needs, is not installed; its message has the pip command.

    `extra` is the extra of this package that installs the module.
    """
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the module's parent package is missing
        found = False
    if not found:
        raise ConfigError(f"{purpose} needs {module}, which is not installed: pip install 'ppo-bench[{extra}]'")


def one_line(said: object) -> str:
    """`said`, such as an exception, as text without line breaks."""
    return " ".join(str(said).split())


def as_run_error(what: str, error: BaseException) -> RunError:
    """Failure of `what`, the code of a user, which raised `error`; it names the line, but none of Python's library."""
    said, frames = one_line(error), traceback.extract_tb(error.__traceback__)
    raised = f"{type(error).__name__}: {said}" if said else type(error).__name__
    library = (sysconfig.get_path("stdlib"), "<")
    place = [f for f in frames if not f.filename.startswith(library) or "site-packages" in f.filename][-1]
    return RunError(f"{what} raises {raised} ({place.filename}, line {place.lineno})")


@contextmanager
def exit_as_error(what: str) -> Iterator[None]:
    """A context in which `sys.exit`, called by `what`, raises `RunError` and does not end the program."""
    try:
        yield
    except SystemExit as error:
        raise as_run_error(what, error) from error


@contextmanager
def as_config_error(what: str) -> Iterator[None]:
    """A context in which what `what`, the code of a user, raises is a `ConfigError`, and `sys.exit` a `RunError`."""
    try:
        with exit_as_error(what):
            yield
    except (ConfigError, RunError):
        raise
    except Exception as error:
        raise ConfigError(str(as_run_error(what, error))) from error


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of the `known` words that are similar to `word`, the most similar first, ignoring case."""
    by_lower = {name.lower(): name for name in known}
    return [by_lower[name] for name in get_close_matches(word.lower(), list(by_lower), n=3)]


def reason(code: int, lines: Sequence[str]) -> str:
    """One line that says why a process failed, from its exit `code` and the last `lines` of its stderr.

    It is the first line of the last error: of an exception if there is a traceback, else of a ppo_bench message.
    Exceptions that Python ignored, as those of destructors, are no reason where another line is.
    """
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    lines = [line for line in lines if line.strip()]
    for start in reversed(range(len(lines))):
        ignored = start > 0 and lines[start - 1].startswith("Exception ignored")
        if lines[start].startswith("Traceback (most recent call last)") and not ignored:
            raised = [line for line in lines[start + 1 :] if not line[0].isspace()]
            return raised[0].strip() if raised else "Traceback"
    said = [line for line in lines if line.startswith("ppo_bench: ")] or lines
    return said[-1].removeprefix("ppo_bench: ").strip() if said else f"exit code {code}"
