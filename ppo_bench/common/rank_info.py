"""Environment variables of a process that shares a training with others (a rank); the names are torchrun's."""

from __future__ import annotations

import os
from typing import NamedTuple

from ppo_bench.common.errors import ConfigError

OWN_CORES, STORE = "PPO_BENCH_OWN_CORES", "PPO_BENCH_STORE"
"""Environment variables of ppo_bench; see the fields of `RankInfo`."""


class RankInfo(NamedTuple):
    """What a launcher has told one of the processes that it started."""

    rank: int
    world_size: int
    local_rank: int
    """Index of the process among those of its machine."""
    local_world_size: int
    """Number of processes on each machine."""
    own_cores: bool
    """Whether the launcher has pinned each process to cores of its own; else those of a machine divide its cores."""
    store: str | None
    """File through which the processes of one machine find each other; None if they use `address`."""

    @property
    def nodes(self) -> int:
        """Number of machines."""
        return self.world_size // self.local_world_size

    @property
    def address(self) -> str:
        """Host and port at which rank 0 listens. Raises `ConfigError` if the launcher has not told it."""
        host, port = os.environ.get("MASTER_ADDR"), _read_int("MASTER_PORT", 0)
        if not (host and port):
            raise ConfigError("RANK and WORLD_SIZE are set, as by a launcher: set MASTER_ADDR and MASTER_PORT, too")
        return f"{host}:{port}"


def read_rank_info() -> RankInfo | None:
    """What the launcher has told this process; None if no launcher started it. Raises `ConfigError`."""
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return None
    rank, world_size = _read_int("RANK", 0), _read_int("WORLD_SIZE", 0)
    local_size = _read_int("LOCAL_WORLD_SIZE", world_size)
    local_rank = _read_int("LOCAL_RANK", rank % (local_size or 1))
    if rank >= world_size or not local_size or world_size % local_size or local_rank >= local_size:
        raise ConfigError(
            f"RANK={rank} WORLD_SIZE={world_size} LOCAL_RANK={local_rank} LOCAL_WORLD_SIZE={local_size}: expected a "
            "rank below each size, and equally many processes on each machine"
        )
    rank_info = RankInfo(
        rank, world_size, local_rank, local_size, os.environ.get(OWN_CORES) == "1", os.environ.get(STORE)
    )
    if rank_info.store is None:
        rank_info.address  # noqa: B018 (raises if the launcher has not set it)
    return rank_info


def set_rank_variables(rank: int, count: int, store: str) -> None:
    """Make this process one of `count` of this machine, which find each other by the file `store`."""
    variables = {"RANK": rank, "WORLD_SIZE": count, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": count, STORE: store}
    os.environ |= {name: str(value) for name, value in variables.items()}


def _read_int(name: str, default: int) -> int:
    """The number in an environment variable; `default` if it is unset or empty. Raises `ConfigError`."""
    text = os.environ.get(name) or str(default)
    if not text.isdecimal():
        raise ConfigError(f"{name}={text}: a launcher sets it to a whole number")
    return int(text)
