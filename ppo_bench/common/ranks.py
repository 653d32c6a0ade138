"""A group of processes that work in lockstep: rank 0 calls methods of the other ranks and monitors their progress.

Every other rank has a connection to rank 0. It answers rank 0's requests, and a thread of it sends a heartbeat with its
progress counter every second. The group fails if a rank exits, raises, sends no heartbeats or makes no progress: rank 0
then kills the others and reports the reason in one line. A rank that loses its connection to rank 0 exits.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.util
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, NamedTuple

from ppo_bench.common.cli import EXIT_CODES
from ppo_bench.common.errors import ConfigError, Failed, Lost

BEAT_SECONDS = 1.0
HANGS_SECONDS = 20.0
"""Time without a heartbeat, or without progress within an iteration, after which a rank counts as hanging."""
SLOWER = 5.0
"""Factor of the longest step of work so far that a step may take, even where this exceeds `HANGS_SECONDS`."""
STARTS_SECONDS = 600.0
"""Time without progress that is allowed in slow phases: startup, compilation, recreating environments."""
GRACE_SECONDS = 5.0
"""Time that is allowed for the main thread to return, and for a more specific error than a broken connection."""


class Ticks:
    """Progress counter of this process: environment steps and minibatches."""

    count = 0

    def tick(self) -> None:
        """Increment the counter."""
        self.count += 1


class Other(NamedTuple):
    """A rank other than 0, as seen by rank 0."""

    rank: int
    connection: Connection
    process: BaseProcess | None
    """Its process if rank 0 started it, else None: it may be on another machine."""


class _Seen(NamedTuple):
    """A rank's progress counter, and the monotonic times of its last heartbeat and of its last progress."""

    ticks: int
    heard_at: float
    moved_at: float


class _Raised(NamedTuple):
    """A rank that raised, its traceback, and the monotonic time until which another reason may turn up."""

    rank: int
    shown: str
    until: float


class Ranks:
    """The group as seen by rank 0: sends requests, collects answers, monitors progress in a thread."""

    def __init__(self, others: Sequence[Other], ticks: Ticks, what: str = "device") -> None:
        """`ticks` is the progress counter of this process, rank 0; `what` is the word for a rank in messages."""
        self._others, self._ticks, self._what = others, ticks, what
        self._answers: dict[int, queue.SimpleQueue[Any]] = {other.rank: queue.SimpleQueue() for other in others}
        self._failure: Exception | None = None
        self._raised: _Raised | None = None
        self._failed, self._ended = threading.Event(), threading.Event()
        now = time.monotonic()
        self._seen = {rank: _Seen(0, now, now) for rank in (0, *self._answers)}
        self._pending: set[int] = set()
        self._asked_at, self._limit_seconds, self._longest_seconds = now, STARTS_SECONDS, 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True, name="ranks")
        self._thread.start()
        # Runs when this process exits, before multiprocessing joins the child processes.
        self._at_exit = multiprocessing.util.Finalize(None, self.stop, exitpriority=1)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def ask(self, name: str, *arguments: Any, within_seconds: float = STARTS_SECONDS) -> None:
        """Request a call of the member's method `name` from all other ranks; returns at once.

        The group fails if no pending rank makes progress for `within_seconds`.
        """
        self._limit_seconds, self._asked_at = within_seconds, time.monotonic()
        self._pending = set(self._seen)
        for other in self._others:
            with suppress(OSError):  # the watching thread reports lost connections
                other.connection.send((name, arguments))

    def answers(self) -> list[Any]:
        """Answers of the other ranks, in rank order. Raises the group's failure if there is one."""
        self._pending.discard(0)
        found = []
        for waiting in self._answers.values():
            while True:
                try:
                    found.append(waiting.get(timeout=0.2))
                    break
                except queue.Empty:
                    if self._failed.is_set():
                        raise self._reason() from None
        return found

    def why(self, error: Exception) -> Exception:
        """Cause of an `error` in rank 0: the group's failure if there is one, since collectives break when a rank ends.

        Errors of type `ConfigError` or `Failed` are returned as they are.
        """
        if isinstance(error, ConfigError | Failed):
            return error
        self._failed.wait(GRACE_SECONDS)
        return self._reason() if self._failed.is_set() else error

    def _reason(self) -> Exception:
        self._ended.set()  # the main thread has returned and reports the failure
        assert self._failure is not None
        return self._failure

    def stop(self) -> None:
        """Ask the other ranks to exit, and kill those that do not within `GRACE_SECONDS`."""
        self._at_exit.cancel()
        self._ended.set()
        for other in self._others:
            with suppress(OSError):
                other.connection.send(None)
        for other in self._others:
            if other.process:
                other.process.join(0.0 if self._failed.is_set() else GRACE_SECONDS)
                other.process.kill()
                other.process.join()
        self._thread.join(GRACE_SECONDS)
        deadline = time.monotonic() + (0.0 if self._failed.is_set() else GRACE_SECONDS)
        for other in self._others:
            if not other.process:
                _wait_for_end(other.connection, deadline)
            other.connection.close()

    # --- Watching -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Body of the watching thread: receives messages of the other ranks and detects ranks that hang."""
        try:
            self._watch_all()
        except Exception as error:  # otherwise the group would go unwatched
            self._fail(Failed(f"the processes of the devices cannot be watched: {error}"))
        if self._failed.is_set() and not self._ended.wait(GRACE_SECONDS):
            print(f"ppo_bench: {self._failure}", file=sys.stderr, flush=True)
            # The main thread is blocked in a library call that waits for a lost rank.
            os._exit(next(code for kind, code in EXIT_CODES.items() if isinstance(self._failure, kind)))

    def _watch_all(self) -> None:
        ranks = {other.connection: other.rank for other in self._others}
        looked = time.monotonic()
        while not (self._ended.is_set() or self._failed.is_set()):
            ready = multiprocessing.connection.wait(list(ranks), timeout=BEAT_SECONDS / 2)
            now = time.monotonic()
            if now - looked > 5 * BEAT_SECONDS:  # this process was suspended, perhaps with the others
                self._seen = {rank: _Seen(seen.ticks, now, now) for rank, seen in self._seen.items()}
            looked = now
            for connection in ready:
                self._take(connection, ranks)  # type: ignore[arg-type]
            self._note(0, self._ticks.count, now)
            self._look(now)
            self._blame(now)

    def _take(self, connection: Connection, ranks: dict[Connection, int]) -> None:
        """Receive and process one message of a rank."""
        rank = ranks[connection]
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            del ranks[connection]
            if not (self._raised and self._raised.rank == rank):
                self._lost(rank)
            return
        if kind == "beat":
            self._note(rank, content, time.monotonic())
        elif kind == "answer":
            self._pending.discard(rank)
            self._answers[rank].put(content)
        elif kind == "failed":
            self._fail(content)
        elif not self._raised:
            self._raised = _Raised(rank, content, time.monotonic() + GRACE_SECONDS / 2)

    def _note(self, rank: int, count: int, now: float) -> None:
        """Record a rank's progress counter, and the longest duration of a step of work."""
        seen = self._seen[rank]
        if count != seen.ticks and self._limit_seconds == HANGS_SECONDS:
            self._longest_seconds = max(self._longest_seconds, now - max(seen.moved_at, self._asked_at))
        self._seen[rank] = _Seen(count, now, now if count != seen.ticks else seen.moved_at)

    def _look(self, now: float) -> None:
        """Fail if a rank has sent no heartbeat for too long, or if no pending rank makes progress."""
        for rank, seen in self._seen.items():
            if now - seen.heard_at > HANGS_SECONDS:
                self._hangs(rank, "its process has been silent", HANGS_SECONDS)
                return
        pending = [(rank, self._seen[rank]) for rank in sorted(self._pending)]
        since = max([self._asked_at, *(seen.moved_at for _, seen in pending)])
        limit_seconds = max(self._limit_seconds, SLOWER * self._longest_seconds)
        if pending and now - since > limit_seconds:
            behind = min(pending, key=lambda one: one[1].ticks)
            self._hangs(behind[0], "it has stood still", limit_seconds)

    def _hangs(self, rank: int, how: str, seconds: float) -> None:
        self._fail(self._loss(rank)(f"{self._named(rank)} hangs: {how} for {seconds:.0f} seconds"))

    def _loss(self, rank: int) -> type[Failed]:
        """Type of the failure if a rank is lost; a rank that a launcher started may be on another machine."""
        return Lost if rank and not self._others[rank - 1].process else Failed

    def _named(self, rank: int) -> str:
        return f"{self._what} {rank} of {len(self._others) + 1}"

    def _lost(self, rank: int) -> None:
        """Fail because the connection to a rank is lost; the message has the signal that killed it, if known."""
        process = self._others[rank - 1].process
        how = "ended"
        if process:
            process.join(GRACE_SECONDS)
            code = process.exitcode
            how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else how
        if not self._ended.is_set():
            self._fail(self._loss(rank)(f"{'the process of ' * (self._what == 'device')}{self._named(rank)} {how}"))

    def _blame(self, now: float) -> None:
        """Fail with the traceback of a rank that raised, unless the group has failed for a better reason meanwhile.

        Its collective operations raise too when another rank's process ends, which is then the reason.
        """
        if self._raised and now > self._raised.until:
            print(self._raised.shown, file=sys.stderr, flush=True)
            last_line = self._raised.shown.strip().splitlines()[-1]
            self._fail(Failed(f"{self._named(self._raised.rank)}: {last_line}"))

    def _fail(self, failure: Exception) -> None:
        """Record the first failure and kill the other ranks, which unblocks calls that wait for them."""
        if self._failed.is_set() or self._ended.is_set():
            return
        self._failure = failure
        self._failed.set()
        for other in self._others:
            if other.process:
                other.process.kill()


def _wait_for_end(connection: Connection, deadline: float) -> None:
    """Return when the other end of a connection is closed, or at the `deadline` (monotonic)."""
    with suppress(EOFError, OSError):
        while connection.poll(max(0.0, deadline - time.monotonic())):
            connection.recv()
