"""A training in a child process, used by all launchers of sweeps."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, NamedTuple

from ppo_bench.common.errors import reason
from ppo_bench.common.stopping import STOP_SIGNALS

OF_A_JOB = ("hydra.mode=RUN", "hydra.run.dir=${run_dir:}")
"""Overrides of every job, since an experiment's file may set these keys: a job is one run, in its usual folder."""
LINES_KEPT = 200
"""Number of last lines of a training's stderr that are kept, to find the reason of a failure."""


class Failure(NamedTuple):
    """Exit code of a training that failed, negative for a signal, and the reason in one line."""

    code: int
    reason: str


def train_in_process(
    words: Sequence[str],
    stop_requests: list[int],
    environment: Mapping[str, str] | None = None,
    folder: str | None = None,
) -> Failure | None:
    """Run `python -m ppo_bench <words>` in `folder`, the current one by default; returns None if it succeeded.

    Its output goes to this process's output. If this process gets one of `STOP_SIGNALS`, the signal is appended to
    `stop_requests`, and the training is asked to stop and waited for. SIGUSR1 and SIGUSR2 stay with a launcher that
    handles them.
    """
    command = [sys.executable, "-m", "ppo_bench", *words, *OF_A_JOB]
    lines: deque[str] = deque(maxlen=LINES_KEPT)
    child: subprocess.Popen[bytes] | None = None

    def note(number: int, _: object) -> None:
        first = not stop_requests
        stop_requests.append(number)
        if child:
            child.terminate()  # on Ctrl-C the child has got SIGINT from the terminal too; SIGTERM then has no effect
        if first:
            with suppress(OSError):  # nobody may read stderr any more
                os.write(2, b"ppo_bench: the sweep stops after the iteration in progress\n")

    unhandled = (signal.SIG_DFL, signal.default_int_handler)
    numbers = {signal.SIGINT, signal.SIGTERM, *(n for n in STOP_SIGNALS if signal.getsignal(n) in unhandled)}
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        child = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE)
        assert child.stderr
        reader = threading.Thread(target=_pass_on, args=(child.stderr, lines), daemon=True)
        reader.start()
        if stop_requests:
            child.terminate()
        code = child.wait()
    except BaseException:  # submitit's signal handler ends this process by an exception
        if child:
            child.terminate()
            child.wait()
        raise
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
    reader.join(1.0)  # processes that the child has left may keep the pipe open
    return Failure(code, reason(code, list(lines))) if code else None


def _pass_on(stderr: IO[bytes], lines: deque[str]) -> None:
    for line in stderr:
        lines.append(line.decode(errors="replace"))
        with suppress(OSError, ValueError):  # it is read to its end even if nobody reads what is passed on
            os.write(2, line)
