"""A training in a process of its own, as every way to launch several has it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from ppo_bench.common.errors import reason

LINES_KEPT = 200
"""Of the end of what a training prints, to say why it failed."""


def train_in_process(
    words: Sequence[str],
    stop_requests: list[int],
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Train `python -m ppo_bench <words>`; None if it succeeded, else why not, in a line.

    What it prints goes to the file `log` if there is one, else where this process prints. It is left to end in its own
    way when this process is asked to stop by SIGINT or SIGTERM, which `stop_requests` then has.
    """
    command = [sys.executable, "-m", "ppo_bench", *words]
    lines: deque[str] = deque(maxlen=LINES_KEPT)
    with open(log, "ab", buffering=0) if log else open(2, "wb", buffering=0, closefd=False) as printed:
        child = subprocess.Popen(command, env=environment, stdout=printed if log else None, stderr=subprocess.PIPE)
        assert child.stderr
        reader = threading.Thread(target=_pass_on, args=(child.stderr, printed, lines), daemon=True)
        reader.start()

        def note(number: int, _: object) -> None:
            if not stop_requests:
                os.write(2, b"ppo_bench: the sweep stops after the iteration in progress\n")
            stop_requests.append(number)
            child.terminate()  # a terminal has sent SIGINT to the child too; SIGTERM after it changes nothing

        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            code = child.wait()
        except BaseException:  # submitit ends this process from its handler of signals
            child.terminate()
            child.wait()
            raise
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)
        reader.join(1.0)  # what the child has left behind may keep the pipe open
    return reason(code, list(lines)) if code else None


def _pass_on(stderr: IO[bytes], printed: IO[bytes], lines: deque[str]) -> None:
    for line in stderr:
        os.write(printed.fileno(), line)
        lines.append(line.decode(errors="replace"))
