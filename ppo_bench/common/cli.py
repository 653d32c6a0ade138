"""Command-line parsing, exit codes and one-line error messages, shared by all commands.

Exit codes: 0 done, 1 failed while running, 2 wrong configuration, 75 another process was lost, 130 interrupted.
"""

from __future__ import annotations

import argparse
import io
import os
import select
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from ppo_bench.common.errors import ConfigError, RankLostError, RunError, RunInterrupted, as_run_error
from ppo_bench.common.paths import with_relative_paths
from ppo_bench.common.values import quote

EXIT_RANK_LOST = 75
EXIT_CODES: dict[type[Exception], int] = {
    ConfigError: 2,
    RankLostError: EXIT_RANK_LOST,
    RunError: 1,
    RunInterrupted: 130,
}


class _HelpShown(SystemExit):
    """The end of a command that has shown its help."""


class Parser(argparse.ArgumentParser):
    """An `ArgumentParser` whose errors are one line."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """See `argparse.ArgumentParser.exit`."""
        raise _HelpShown(status)

    def add_overrides(self, words: str = "") -> None:
        """Add the arguments that `parse_overrides` reads: configuration overrides, and `--config-dir`.

        `words` is the help text of the overrides.
        """
        self.add_argument("overrides", nargs="*", default=[], help=words)
        self.add_argument("--config-dir", metavar="DIR", help="a folder of your own YAML files, laid out like conf/")

    def error(self, message: str) -> NoReturn:
        """Raise `ConfigError` with argparse's message."""
        raise ConfigError(f"{message}; {self.prog} --help lists what there is")


def parse_overrides(options: argparse.Namespace) -> list[str]:
    """The overrides, preceded by a search path for `--config-dir`. Raises `ConfigError` if that folder is missing."""
    if options.config_dir is None:
        return list(options.overrides)
    folder = Path(options.config_dir).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"--config-dir {options.config_dir}: there is no such folder")
    return [f"hydra.searchpath=[{quote(f'file://{folder.resolve()}')}]", *options.overrides]


def add_cwd_to_path() -> None:
    """Let Python find modules in the current folder, as `python -m` does."""
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())


def exit_code(main: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Run a command and return its exit code. Errors that a user cannot correct are raised with their traceback."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(arguments)
        if sys.stdout:  # None if it was closed before the start
            sys.stdout.flush()
        return code
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _is_stdout_closed():
            return 1
        if not is_user_error(error):
            raise
        code = next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
        said: object = error
        if isinstance(error, OSError) and error.filename:  # such as a full disk
            said = f"{error.strerror or error}: {error.filename}"
        elif _is_out_of_memory(error):
            what = (str(error).strip() or type(error).__name__).splitlines()[0]
            less = "fewer ppo.num_envs or ppo.num_steps or a smaller network need less"
            said = f"out of memory ({what}): {less}; what was saved is kept"
        return _fail(code, said)
    except _HelpShown:
        raise
    except SystemExit as error:  # of code that is not ppo_bench's
        return _fail(1, as_run_error("the command", error))
    except KeyboardInterrupt:
        return _fail(130, "stopped at once")


def is_user_error(error: Exception) -> bool:
    """Whether `exit_code` prints the error as one line, because its message says what to change."""
    return isinstance(error, (*EXIT_CODES, OSError)) or _is_out_of_memory(error)


def _is_stdout_closed() -> bool:
    """Whether the reader of stdout, such as head, has closed the pipe; if so, further output is discarded."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    closed = any(event & select.POLLERR for _, event in poll.poll(0))
    if closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return closed


def _is_out_of_memory(error: Exception) -> bool:
    """Whether `error` is an out-of-memory error of Python, of PyTorch on a CPU or a GPU, or of JAX."""
    said = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "RESOURCE_EXHAUSTED")
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or any(words in str(error) for words in said)
    )


def _fail(code: int, reason: object) -> int:
    try:
        print(f"ppo_bench: {with_relative_paths(str(reason))}", file=sys.stderr, flush=True)
    except OSError:  # nobody reads it; what is left of it is discarded, and the exit code stays
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return code
