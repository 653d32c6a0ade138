"""Signals that ask a training to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Terminals and operating systems send the first two; clusters send the others before a time limit or a preemption."""


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list of the `STOP_SIGNALS` received so far, empty at first; a second signal that is SIGINT stops at once."""
    received: list[int] = []

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
            signal.signal(number, signal.default_int_handler if heeded else handler)
