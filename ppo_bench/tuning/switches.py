"""Which tuning is on. Each field is a module's, and off what there would be without that module."""

from __future__ import annotations

from dataclasses import dataclass

from ppo_bench.common.values import younger


@dataclass(frozen=True)
class Tuning:
    """The keys of `tuning`; see conf/tuning/on.yaml."""

    keep_freed_memory: bool = younger(True)
    """`freed_memory.py`."""
    sleep_idle_threads: bool = younger(True)
    """`idle_threads.py`."""
    follow_caller: bool = younger(True)
    """`follow.py`."""
    convolve_by_products: bool = younger(True)
    """`jax_convolutions.py`."""


ON = Tuning()
