"""How often an iteration asks the device for something, and how often data cross to it and back, from a trace.

On a GPU these are a profiler's kernels, graphs and copies. On a CPU nothing crosses, and what is counted is what a GPU
would be asked for: the operations of PyTorch that compute, calls of compiled regions, the programs of JAX.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

VIEWS = frozenset(
    f"aten::{name}"
    for name in (
        *("as_strided", "alias", "detach", "detach_", "expand", "expand_as", "narrow", "permute", "reshape", "select"),
        *("slice", "split", "squeeze", "t", "transpose", "unbind", "unfold", "unsqueeze", "view", "view_as", "chunk"),
        *("empty", "empty_strided", "empty_like", "lift_fresh", "resolve_conj", "resolve_neg", "result_type", "to"),
    )
)
"""Operations of PyTorch that compute nothing."""
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "hipLaunchKernel", "hipGraphLaunch")


class Launches(NamedTuple):
    """Counts of one iteration."""

    launches: int
    """Kernels and graphs on a GPU; else operations that compute, or programs."""
    copies_in: int | None
    """To the device; None on a CPU."""
    copies_out: int | None

    def in_words(self, steps: int) -> str:
        """A line for an iteration of so many environment steps."""
        what = f"{self.launches:,} launches in an iteration of {steps} steps"
        if self.copies_in is None:
            return f"{what} (as counted on a CPU: operations that compute, or programs)"
        return f"{what}, {self.copies_in:,} copies to the device and {self.copies_out:,} back"


def launches(trace: Path) -> Launches:
    """Counts of a trace that `Traced` has written."""
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        found = json.load(file)
    events = found["traceEvents"] if isinstance(found, dict) else found
    spans = [event for event in events if event.get("ph") == "X"]
    devices = {event["pid"] for event in events if _is_gpu(event)}
    if devices:
        return _of_jax_on_a_gpu([event for event in spans if event["pid"] in devices])
    if any(event.get("cat") in ("cuda_runtime", "cuda_driver", "kernel") for event in spans):
        launched = _count(spans, lambda name: name.startswith(LAUNCHES))
        return Launches(launched, _count(spans, _starts("Memcpy HtoD")), _count(spans, _starts("Memcpy DtoH")))
    programs = _outermost(event for event in spans if event["name"].startswith("PjitFunction("))
    operations = _innermost(event for event in spans if event.get("cat") == "cpu_op")
    return Launches(len(programs) or sum(event["name"] not in VIEWS for event in operations), None, None)


def _is_gpu(event: dict[str, Any]) -> bool:
    """Whether an event names a GPU of JAX's."""
    return event.get("name") == "process_name" and "/device:GPU" in str(event.get("args", {}).get("name"))


def _of_jax_on_a_gpu(spans: list[dict[str, Any]]) -> Launches:
    kernels = _count(spans, lambda name: "memcpy" not in name.lower() and "memset" not in name.lower())
    return Launches(kernels, _count(spans, _starts("MemcpyH2D")), _count(spans, _starts("MemcpyD2H")))


def _count(spans: Iterable[dict[str, Any]], wanted: Callable[[str], bool]) -> int:
    return sum(wanted(event["name"]) for event in spans)


def _starts(beginning: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(beginning)


def _outermost(spans: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans that are not within another of the same thread."""
    found: list[dict[str, Any]] = []
    ends: dict[int, float] = {}
    for event in sorted(spans, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= ends.get(event["tid"], 0.0):
            found.append(event)
            ends[event["tid"]] = event["ts"] + event["dur"]
    return found


def _innermost(spans: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans within which there is no other of the same thread."""
    found: list[dict[str, Any]] = []
    for event in sorted(spans, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        last = found[-1] if found else None
        if last and last["tid"] == event["tid"] and event["ts"] + event["dur"] <= last["ts"] + last["dur"]:
            found[-1] = event
        else:
            found.append(event)
    return found
