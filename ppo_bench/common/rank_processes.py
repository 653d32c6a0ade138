"""The other ranks of a group (ppo_bench/common/ranks.py): their processes, and how they meet rank 0."""

from __future__ import annotations

import multiprocessing
import multiprocessing.resource_tracker
import os
import secrets
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Client, Connection, Listener
from types import ModuleType
from typing import Any, NamedTuple

from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.ranks import BEAT_SECONDS, Other, Ticks

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Those of ppo_bench/runs/stopping.py."""


def serve(connection: Connection, make: Callable[[Ticks], Any]) -> None:
    """Be another rank: make its member, and call the methods that rank 0 asks for until rank 0 is gone.

    Signals to stop are passed on with the next answer, as `(value, signals)`.
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
    except Exception:
        with suppress(OSError):
            send("broken", traceback.format_exc())
    finally:
        over.set()
        if member is not None:
            member.close()


def _beat(send: Callable[[str, Any], None], ticks: Ticks, over: threading.Event) -> None:
    """Say every second that this process is alive; end it once rank 0 is gone, whatever its main thread waits for."""
    with suppress(OSError):
        while not over.wait(BEAT_SECONDS):
            send("beat", ticks.count)
    if not over.is_set():
        os._exit(1)


# --- Starting and meeting ---------------------------------------------------------------------------------------------


class Launched(NamedTuple):
    """What a launcher such as torchrun tells each of the processes that it started."""

    rank: int
    world_size: int
    host: str
    port: int
    """Where rank 0, or the launcher, has a store of PyTorch's at which the ranks meet."""
    has_store: bool
    """Whether it is the launcher's."""
    attempt: str


def launched() -> Launched | None:
    """What the environment says of this process as one of several; None if it says nothing."""
    told = os.environ.get
    if told("RANK") is None or told("WORLD_SIZE") is None or told("MASTER_ADDR") is None:
        return None
    return Launched(
        int(os.environ["RANK"]),
        int(os.environ["WORLD_SIZE"]),
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        told("TORCHELASTIC_USE_AGENT_STORE") == "True",
        told("TORCHELASTIC_RESTART_COUNT", "0"),
    )


def start(count: int, make: Callable[..., Any], *arguments: Any) -> list[Other]:
    """Start ranks 1 to `count - 1` on this machine; the member of each is `make(rank, *arguments, ticks)`."""
    spawn = multiprocessing.get_context("spawn")
    multiprocessing.resource_tracker.ensure_running()  # it would undo the mask of signals
    others = []
    for rank in range(1, count):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, rank, make, arguments))
        with _signals_kept_until_served(), _without_main():
            process.start()
        theirs.close()
        others.append(Other(rank, ours, process))
    return others


@contextmanager
def _signals_kept_until_served() -> Iterator[None]:
    """A process that is started here receives signals to stop once it knows what to do with them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started here does not run the caller's script again: it needs nothing of that."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(connection: Connection, rank: int, make: Callable[..., Any], arguments: Iterable[Any]) -> None:
    serve(connection, lambda ticks: make(rank, *arguments, ticks))


def listen(host: str) -> tuple[Listener, dict[str, Any]]:
    """A listener of rank 0 for the connections of ranks that others started, and what those need to `connect`."""
    key = secrets.token_hex(16)
    listener = Listener((host, 0), authkey=key.encode())
    return listener, {"host": host, "port": listener.address[1], "key": key}


def accept(listener: Listener, count: int) -> list[Other]:
    """The other ranks, once all have connected."""
    others = []
    with listener:
        for _ in range(1, count):
            connection = listener.accept()
            others.append(Other(connection.recv(), connection, None))
    return sorted(others, key=lambda other: other.rank)


def connect(rank: int, told: dict[str, Any]) -> Connection:
    """The connection of another rank to rank 0."""
    connection = Client((told["host"], told["port"]), authkey=told["key"].encode())
    connection.send(rank)
    return connection
