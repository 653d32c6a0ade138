"""Signals that ask a training to stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Terminals and operating systems send the first two; clusters send the others before a time limit or a preemption."""


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list of the `STOP_SIGNALS` received so far, empty at first; a second signal that is SIGINT stops at once.

    It stays empty in a thread other than the main one, where Python handles no signals.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def request(number: int, frame: object) -> None:
        if received and number == signal.SIGINT:
            raise KeyboardInterrupt
        received.append(number)

    before = {number: signal.signal(number, request) for number in STOP_SIGNALS}
    try:
        yield received
    finally:
        for number, handler in before.items():
            # A script's background programs start with SIGINT ignored; one that obeyed a first SIGINT obeys a second.
            heeded = handler == signal.SIG_IGN and number in received
            # A handler that is not Python's is None here, and cannot be restored.
            signal.signal(number, signal.default_int_handler if heeded or handler is None else handler)


@contextmanager
def defer_stop_signals() -> Iterator[None]:
    """A context in which `STOP_SIGNALS` wait until its end.

    A process that is started in it begins with them blocked, and receives them once it unblocks them. Blocking is not
    enough for this process: another thread may receive a signal, and Python calls the handler in the main thread. In a
    thread other than that one, only the started process is kept from them.
    """
    resource_tracker.ensure_running()  # it would start with the first process, and unblock signals
    received: list[int] = []
    # None is a handler that is not Python's: it raises no exception, and could not be restored.
    numbers = STOP_SIGNALS if threading.current_thread() is threading.main_thread() else ()
    before = {number: handler for number in numbers if (handler := signal.getsignal(number)) is not None}
    for withheld in before:
        signal.signal(withheld, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        for arrived in received:  # once all have their handlers again
            signal.raise_signal(arrived)
