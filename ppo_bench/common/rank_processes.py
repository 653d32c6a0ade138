"""Processes of the ranks other than 0 (ppo_bench/common/ranks.py): how they start and what they do."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.ranks import BEAT_SECONDS, Other, Ticks
from ppo_bench.common.stopping import STOP_SIGNALS


def serve(connection: Connection, make: Callable[[Ticks], Any]) -> None:
    """Main loop of a rank other than 0: creates its member and calls the methods that rank 0 requests.

    The loop returns when rank 0 sends None or its connection closes. Answers are `(value, signals)`, where `signals`
    are the stop signals received since the last answer.
    """
    lock, ticks, over = threading.Lock(), Ticks(), threading.Event()
    received: list[int] = []
    for number in STOP_SIGNALS:
        signal.signal(number, lambda number, _: received.append(number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)

    def send(kind: str, content: Any) -> None:
        with lock:
            connection.send((kind, content))

    threading.Thread(target=_beat, args=(send, ticks, over), daemon=True, name="beat").start()
    member: Any = None
    try:
        member = make(ticks)
        send("answer", (None, ()))
        while (asked := connection.recv()) is not None:
            name, arguments = asked
            value = getattr(member, name)(*arguments)
            signals = tuple(received)
            del received[: len(signals)]
            send("answer", (value, signals))
    except (EOFError, BrokenPipeError, ConnectionResetError):  # rank 0 is gone
        pass
    except (ConfigError, Failed) as error:
        with suppress(OSError):
            send("failed", error)
    except (Exception, SystemExit):
        with suppress(OSError):
            send("broken", traceback.format_exc())
    finally:
        over.set()
        if member is not None:
            member.close()


def _beat(send: Callable[[str, Any], None], ticks: Ticks, over: threading.Event) -> None:
    """Send a heartbeat every second. If rank 0 is gone, end this process, even if its main thread is blocked."""
    with suppress(OSError):
        while not over.wait(BEAT_SECONDS):
            send("beat", ticks.count)
    if not over.is_set():
        os._exit(1)


# --- Starting ---------------------------------------------------------------------------------------------------------


def start(count: int, make: Callable[..., Any], *arguments: Any) -> list[Other]:
    """Start ranks 1 to `count - 1` on this machine; the member of each is `make(rank, *arguments, ticks)`.

    Call it with stop signals withheld, which the processes receive once their handlers are set. An error in the
    meantime ends those that have started.
    """
    spawn = multiprocessing.get_context("spawn")
    others: list[Other] = []
    try:
        for rank in range(1, count):
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_serve, args=(theirs, rank, make, arguments))
            others.append(Other(rank, ours, process))
            with _without_main():
                process.start()
            theirs.close()
    except Exception:  # nobody would answer the processes, and the end would wait for theirs
        for other in others:
            if other.process and other.process.pid is not None:  # None: it has not started
                other.process.kill()
        raise
    return others


@contextmanager
def _without_main() -> Iterator[None]:
    """Replaces `__main__` while a process is started, so that the process does not run the caller's script again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(connection: Connection, rank: int, make: Callable[..., Any], arguments: Iterable[Any]) -> None:
    serve(connection, lambda ticks: make(rank, *arguments, ticks))
