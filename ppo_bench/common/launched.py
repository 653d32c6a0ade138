"""Processes that a launcher such as torchrun or srun has started: what it tells them, how they connect to rank 0."""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import NamedTuple

from ppo_bench.common.errors import ConfigError, Failed
from ppo_bench.common.ranks import Other

JOIN_SECONDS = 600
"""Default of `Launched.join_seconds`."""
MOST_PORT = 65_535
RETRY_SECONDS = 0.2
GREETS_SECONDS = 5
"""Maximum time for each message of a process that has connected, until it is known to be one of the others."""
OWN_CORES, JOINING, KEY = "PPO_BENCH_OWN_CORES", "PPO_BENCH_JOIN_SECONDS", "PPO_BENCH_KEY"
"""Environment variables beside those of torchrun; see the fields of `Launched`."""


class Launched(NamedTuple):
    """Environment variables that a launcher sets for each process that it starts; the names are torchrun's."""

    rank: int
    world_size: int
    local_rank: int
    """Index of the process among those of its machine."""
    local_world_size: int
    """Number of processes on each machine."""
    host: str
    port: int
    """Port at which rank 0 listens, or that of the launcher's TCP store, which then says where rank 0 listens."""
    has_store: bool
    attempt: str
    """Number of restarts by the launcher; identifies this attempt in its store."""
    key: str
    """Secret by which the processes recognise each other."""
    own_cores: bool
    """Whether the launcher has pinned each process to cores of its own; else those of a machine divide its cores."""
    join_seconds: float
    """Maximum time to wait for the other processes, in seconds."""

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return self.world_size // self.local_world_size


def told_number(name: str, default: int, most: int = 2**31) -> int:
    """The whole number in an environment variable; `default` if it is unset or empty. Raises `ConfigError`."""
    text = os.environ.get(name, "")
    if text and not (text.isdecimal() and int(text) <= most):
        raise ConfigError(f"{name}={text}: expected a whole number of at most {most} in this environment variable")
    return int(text) if text else default


def launched() -> Launched | None:
    """The launcher's environment variables; None if no launcher started this process."""
    told = os.environ.get
    if told("RANK") is None or told("WORLD_SIZE") is None or told("MASTER_ADDR") is None:
        return None
    host, port = os.environ["MASTER_ADDR"], told_number("MASTER_PORT", 0, MOST_PORT)
    rank, world_size = told_number("RANK", 0), told_number("WORLD_SIZE", 0)
    if not (port and world_size):
        raise ConfigError(
            "RANK, WORLD_SIZE and MASTER_ADDR are set, as by a launcher: set MASTER_PORT too, or unset them"
        )
    of_machine = told_number("LOCAL_WORLD_SIZE", world_size) or world_size
    local_rank = told_number("LOCAL_RANK", rank % of_machine)
    if rank >= world_size or world_size % of_machine or local_rank >= of_machine:
        raise ConfigError(
            f"RANK={rank} WORLD_SIZE={world_size} LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE={of_machine}: expected a "
            "rank below each size, and equally many processes on each machine"
        )
    return Launched(
        rank,
        world_size,
        local_rank,
        of_machine,
        host,
        port,
        told("TORCHELASTIC_USE_AGENT_STORE") == "True",
        told("TORCHELASTIC_RESTART_COUNT", "0"),
        told(KEY) or f"{host}:{port}",
        told(OWN_CORES) == "1",
        told_number(JOINING, JOIN_SECONDS),
    )


def listen(host: str, port: int) -> socket.socket:
    """Socket at which rank 0 waits for the others; port 0 is a free one. Raises `ConfigError` if the port is in use."""
    try:
        return socket.create_server((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise ConfigError(f"port {port} of {host} is in use: choose another by MASTER_PORT=...") from error


def accept(server: socket.socket, key: str, count: int, seconds: float) -> list[Other]:
    """Ranks 1 to `count - 1` in order, when all have connected. Raises `Failed` if one has not within `seconds`."""
    found: dict[int, Other] = {}
    deadline = time.monotonic() + seconds
    with server:
        while len(found) < count - 1:
            server.settimeout(max(0.1, deadline - time.monotonic()))
            try:
                connected, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(1, count)) - found.keys())
                shown = f"process {missing[0]}" if len(missing) == 1 else f"processes {', '.join(map(str, missing))}"
                raise Failed(f"{shown} of {count} did not come within {seconds:.0f} seconds") from None
            with connected:
                connected.settimeout(None)
                connection = Connection(os.dup(connected.fileno()))
                _limit_receiving(connected, GREETS_SECONDS)
                try:
                    deliver_challenge(connection, key.encode())
                    answer_challenge(connection, key.encode())
                    rank = connection.recv()
                except (AuthenticationError, AssertionError, EOFError, OSError):  # someone else, perhaps silent
                    connection.close()
                    continue
                _limit_receiving(connected, 0)
            found[rank] = Other(rank, connection, None)
    return [found[rank] for rank in sorted(found)]


def _limit_receiving(connected: socket.socket, seconds: int) -> None:
    """Let whoever receives from a blocking socket get an `OSError` after `seconds` without a byte; 0 means never."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", seconds, 0))


def connect(rank: int, host: str, port: int, key: str, seconds: float) -> Connection:
    """Connection from rank `rank` to rank 0. Raises `Failed` if rank 0 does not listen within `seconds`, or ends."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connected = socket.create_connection((host, port), timeout=max(1.0, deadline - time.monotonic()))
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise Failed(f"process 0 at {host}:{port} did not come within {seconds:.0f} seconds") from error
            time.sleep(RETRY_SECONDS)
    connected.settimeout(None)
    connection = Connection(connected.detach())
    try:
        answer_challenge(connection, key.encode())
        deliver_challenge(connection, key.encode())
        connection.send(rank)
    except (AuthenticationError, AssertionError, EOFError, OSError) as error:
        raise Failed(f"{host}:{port} has not let process {rank} in: process 0 has ended, or it is another") from error
    return connection
