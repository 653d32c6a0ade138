"""The processes that share a training on this machine's devices, by `torch.multiprocessing.spawn`: one for each."""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

from ppo_bench.common.cli import is_user_error
from ppo_bench.common.errors import RankLostError, RunError, RunInterrupted, one_line
from ppo_bench.common.rank_info import set_rank_variables
from ppo_bench.common.stopping import STOP_SIGNALS, defer_stop_signals

GRACE_SECONDS = 5.0
"""Time for the others to end when a rank has failed, before SIGTERM, and once more before SIGKILL."""


class RankFailed(RunError):
    """The end of a rank that could not say why, such as by SIGKILL."""


def run_ranks(count: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function(*arguments)` in `count` processes at the same time; what rank 0 returns.

    Raises what the first rank that fails has raised, once all have ended, or `RankFailed`. Stop signals are passed on.
    """
    from torch.multiprocessing.spawn import ProcessExitedException, spawn

    ended: SimpleQueue[Any] = get_context("spawn").SimpleQueue()
    with TemporaryDirectory(prefix="ppo_bench-") as folder:
        store = str(Path(folder, "store"))
        processes: list[int] = []
        try:
            with _forward_signals(processes):
                with defer_stop_signals():  # each rank receives them once it can
                    ranks = spawn(_run_rank, (count, store, ended, function, arguments), nprocs=count, join=False)
                    processes += ranks.pids()
                while not ranks.join(timeout=1.0, grace_period=GRACE_SECONDS):
                    pass
        except ProcessExitedException as error:
            if error.signal_name or ended.empty():  # the others fail because they have lost it
                how = f"was killed by {error.signal_name}" if error.signal_name else f"exited with {error.exit_code}"
                raise RankFailed(f"the process of device {error.error_index} of {count} {how}") from error
        outcomes = []
        while not ended.empty():
            outcomes.append(ended.get())
    if not outcomes:  # such as after `os._exit(0)` in an environment
        raise RankFailed(f"the process of device 0 of {count} ended without a result")
    for outcome in outcomes:  # rank 0 may have ended before another fails
        if isinstance(outcome, Exception):
            raise RunError(str(outcome)) if isinstance(outcome, RankLostError) else outcome
    return outcomes[0]


def _run_rank(
    rank: int, count: int, store: str, ended: SimpleQueue[Any], function: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    set_rank_variables(rank, count, store)
    try:
        _stop_at_once_on_signals()
        outcome = function(*arguments)
        if rank == 0:
            ended.put(outcome)
    except KeyboardInterrupt:
        _exit_with(ended, RunInterrupted("stopped at once"))
    except Exception as error:
        if is_user_error(error):
            _exit_with(ended, error)
        traceback.print_exc()
        _exit_with(ended, RankFailed(f"device {rank} of {count}: {type(error).__name__}: {one_line(error)}"))


def _exit_with(ended: SimpleQueue[Any], error: Exception) -> NoReturn:
    ended.put(error)
    os._exit(1)  # an orderly exit of libraries would wait for the other ranks, or abort


def _stop_at_once_on_signals() -> None:
    """Let a first stop signal raise `KeyboardInterrupt`, until the training handles them; others are then ignored."""

    def stop(number: int, frame: object) -> None:
        for each in STOP_SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in STOP_SIGNALS:
        signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@contextmanager
def _forward_signals(processes: list[int]) -> Iterator[None]:
    """A context in which stop signals go to `processes`; the first SIGINT as SIGTERM.

    A terminal sends Ctrl-C to the ranks, too, and a second SIGINT would stop them at once.
    """
    received: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        first = not received
        received.append(number)
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM if first and number == signal.SIGINT else number)

    # Python handles signals in the main thread alone.
    numbers = STOP_SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
