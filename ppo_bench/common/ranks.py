"""A group of processes that work in step: rank 0 asks the others, all watch that every one of them goes on.

Each other rank has a connection to rank 0. It answers what rank 0 asks, and a thread of its own says every second that
it is alive and how far it has come. A rank that ends, raises, falls silent or stands still is a failure of the group:
rank 0 ends the others and has the reason in a line. A rank whose connection to rank 0 is gone ends itself.
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

from ppo_bench.common.errors import ConfigError, Failed

BEAT_SECONDS = 1.0
HANGS_SECONDS = 20.0
"""A rank that is silent, or stands still within an iteration, for so long counts as hanging."""
SLOWER = 5.0
"""A step of work may take so many times as long as the longest before it, whatever `HANGS_SECONDS`."""
STARTS_SECONDS = 600.0
"""The same for what may take long: starting, compiling, making environments anew."""
GRACE_SECONDS = 5.0
"""Time for the main thread to come back, and for a better reason than a broken connection to arrive."""


class Ticks:
    """A counter of the work that this process has done: environment steps and minibatches."""

    count = 0

    def tick(self) -> None:
        """Count one."""
        self.count += 1


class Other(NamedTuple):
    """Another rank, as rank 0 sees it."""

    rank: int
    connection: Connection
    process: BaseProcess | None
    """The process, if rank 0 started it."""


class _Seen(NamedTuple):
    """How far a rank has come, and when it was heard of and had moved last, by the monotonic clock."""

    ticks: int
    heard_at: float
    moved_at: float


class Ranks:
    """Rank 0's end of the group."""

    def __init__(self, others: Sequence[Other], ticks: Ticks) -> None:
        """`ticks` are this process's own."""
        self._others, self._ticks = others, ticks
        self._answers: dict[int, queue.SimpleQueue[Any]] = {other.rank: queue.SimpleQueue() for other in others}
        self._failure: Exception | None = None
        self._failed, self._ended = threading.Event(), threading.Event()
        now = time.monotonic()
        self._seen = {rank: _Seen(0, now, now) for rank in (0, *self._answers)}
        self._pending: set[int] = set()
        self._asked_at, self._limit_seconds, self._longest_seconds = now, STARTS_SECONDS, 0.0
        self._thread = threading.Thread(target=self._watch, daemon=True, name="ranks")
        self._thread.start()
        # As this process ends, before it would wait for those that it has started.
        self._at_exit = multiprocessing.util.Finalize(None, self.stop, exitpriority=1)

    # --- Asking -------------------------------------------------------------------------------------------------------

    def ask(self, name: str, *arguments: Any, within_seconds: float = STARTS_SECONDS) -> None:
        """Have every other rank call its member's method `name`; none may stand still for `within_seconds`."""
        self._limit_seconds, self._asked_at = within_seconds, time.monotonic()
        self._pending = set(self._seen)
        for other in self._others:
            with suppress(OSError):  # that it is gone is what the thread finds
                other.connection.send((name, arguments))

    def answers(self) -> list[Any]:
        """What the other ranks answered, in order. Raises the failure of the group."""
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
        """The failure behind an `error` of rank 0: another rank's if there is one, which breaks what they share."""
        if isinstance(error, ConfigError | Failed):
            return error
        self._failed.wait(GRACE_SECONDS)
        return self._reason() if self._failed.is_set() else error

    def _reason(self) -> Exception:
        self._ended.set()  # the main thread is back and says why
        assert self._failure is not None
        return self._failure

    def stop(self) -> None:
        """End the other ranks: of themselves, now that nobody asks them, or else by force."""
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
        for other in self._others:
            other.connection.close()

    # --- Watching -----------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """The thread: take in what the others say, and look for one that does not go on."""
        try:
            self._watch_all()
        except Exception as error:  # nobody would watch any longer
            self._fail(Failed(f"the processes of the devices cannot be watched: {error}"))
        if self._failed.is_set() and not self._ended.wait(GRACE_SECONDS):
            print(f"ppo_bench: {self._failure}", file=sys.stderr, flush=True)
            os._exit(1)  # the main thread waits in a library for a rank that is gone

    def _watch_all(self) -> None:
        ranks = {other.connection: other.rank for other in self._others}
        looked = time.monotonic()
        while not (self._ended.is_set() or self._failed.is_set()):
            for connection in multiprocessing.connection.wait(list(ranks), timeout=BEAT_SECONDS / 2):
                self._take(connection, ranks)  # type: ignore[arg-type]
            now = time.monotonic()
            self._note(0, self._ticks.count, now)
            if now - looked > 5 * BEAT_SECONDS:  # this process was stopped, and perhaps the others with it
                self._seen = {rank: _Seen(seen.ticks, now, now) for rank, seen in self._seen.items()}
            looked = now
            self._look(now)

    def _take(self, connection: Connection, ranks: dict[Connection, int]) -> None:
        """Take in one message of a rank."""
        rank = ranks[connection]
        try:
            kind, content = connection.recv()
        except (EOFError, OSError):
            del ranks[connection]
            self._lost(rank)
            return
        if kind == "beat":
            self._note(rank, content, time.monotonic())
        elif kind == "answer":
            self._pending.discard(rank)
            self._answers[rank].put(content)
        elif kind == "failed":
            self._fail(content)
        else:
            self._broken(rank, content)

    def _note(self, rank: int, count: int, now: float) -> None:
        """Keep how far a rank has come."""
        seen = self._seen[rank]
        if count != seen.ticks and self._limit_seconds == HANGS_SECONDS:
            self._longest_seconds = max(self._longest_seconds, now - max(seen.moved_at, self._asked_at))
        self._seen[rank] = _Seen(count, now, now if count != seen.ticks else seen.moved_at)

    def _look(self, now: float) -> None:
        """Fail if a rank is silent, or if all that have yet to answer stand still."""
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
        self._fail(Failed(f"device {rank} of {self._count} hangs: {how} for {seconds:.0f} seconds"))

    @property
    def _count(self) -> int:
        return len(self._others) + 1

    def _lost(self, rank: int) -> None:
        """Fail since the connection to a rank is gone."""
        process = self._others[rank - 1].process
        how = "ended"
        if process:
            process.join(GRACE_SECONDS)
            code = process.exitcode
            how = f"was killed by {signal.Signals(-code).name}" if code is not None and code < 0 else how
        if not self._ended.is_set():
            self._fail(Failed(f"the process of device {rank} of {self._count} {how}"))

    def _broken(self, rank: int, shown: str) -> None:
        """Fail by what a rank raised, unless that follows from another's end, which is heard of within a moment."""
        deadline = time.monotonic() + GRACE_SECONDS / 2
        while time.monotonic() < deadline:
            for other in self._others:
                if other.rank != rank and other.process and other.process.exitcode is not None:
                    self._lost(other.rank)
                    return
            time.sleep(0.05)
        print(shown, file=sys.stderr, flush=True)
        self._fail(Failed(f"device {rank} of {self._count}: {shown.strip().splitlines()[-1]}"))

    def _fail(self, failure: Exception) -> None:
        """Keep the first failure, and end the other ranks, so that whoever waits for them does not any longer."""
        if self._failed.is_set() or self._ended.is_set():
            return
        self._failure = failure
        self._failed.set()
        for other in self._others:
            if other.process:
                other.process.kill()
