"""Signals by which a training is asked to stop."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Terminals and systems send the first two; clusters warn of a time limit or a preemption by the others."""


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """A list that is empty until one of `STOP_SIGNALS` arrives; a second SIGINT stops at once."""
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
            # A script's background programs start with SIGINT ignored; one that has heeded a first heeds a second.
            heeded = handler == signal.SIG_IGN and number in received
            signal.signal(number, signal.default_int_handler if heeded else handler)
