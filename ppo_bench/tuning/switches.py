"""Switches of the optimisations in this folder. Each has a module; switched off, the module has no effect."""

from __future__ import annotations

from dataclasses import dataclass

from ppo_bench.common.values import added_field


@dataclass(frozen=True)
class Tuning:
    """The keys of the group `tuning`; conf/tuning/on.yaml explains them."""

    keep_freed_memory: bool = added_field(True)
    """See `freed_memory.py`."""
    sleep_idle_threads: bool = added_field(True)
    """See `idle_threads.py`."""
    follow_caller: bool = added_field(True)
    """See `thread_affinity.py`."""
    convolve_by_products: bool = added_field(True)
    """See `jax_convolutions.py`."""


ON = Tuning()
