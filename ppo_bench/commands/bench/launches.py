"""Number of kernel launches and of copies to and from the device in an iteration, counted in a profiler's trace.

On a GPU these are launches of kernels and CUDA graphs, and memory copies. On a CPU there are no copies. The launches
counted there are those that a GPU would get: PyTorch operations that compute, calls of compiled regions, JAX programs.
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
"""PyTorch operations that launch no kernel."""
LAUNCHES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "hipLaunchKernel", "hipGraphLaunch")


class Launches(NamedTuple):
    """Numbers of launches and copies in one iteration, or in as many as a call of a program makes."""

    launches: int
    """Launches of kernels and graphs on a GPU; on a CPU operations that compute, or programs."""
    copies_in: int | None
    """Copies from the host to the device; None on a CPU."""
    copies_out: int | None
    """Copies from the device to the host; None on a CPU."""

    def in_words(self, steps: int) -> str:
        """A line of text on an iteration of `steps` environment steps."""
        what = f"{self.launches:,} launches in an iteration of {steps} steps"
        if self.copies_in is None:
            return f"{what} (as counted on a CPU: operations that compute, or programs)"
        return f"{what}, {self.copies_in:,} copies to the device and {self.copies_out:,} back"


def launches(trace: Path) -> Launches:
    """The launches and copies in the file `trace`, which `trace` has written."""
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
    """Whether a trace event declares a GPU of JAX as a process."""
    return event.get("name") == "process_name" and "/device:GPU" in str(event.get("args", {}).get("name"))


def _of_jax_on_a_gpu(spans: list[dict[str, Any]]) -> Launches:
    kernels = _count(spans, lambda name: "memcpy" not in name.lower() and "memset" not in name.lower())
    return Launches(kernels, _count(spans, _starts("MemcpyH2D")), _count(spans, _starts("MemcpyD2H")))


def _count(spans: Iterable[dict[str, Any]], wanted: Callable[[str], bool]) -> int:
    return sum(wanted(event["name"]) for event in spans)


def _starts(beginning: str) -> Callable[[str], bool]:
    return lambda name: name.startswith(beginning)


def _outermost(spans: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans that are not inside another span of the same thread."""
    found: list[dict[str, Any]] = []
    ends: dict[int, float] = {}
    for event in sorted(spans, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] >= ends.get(event["tid"], 0.0):
            found.append(event)
            ends[event["tid"]] = event["ts"] + event["dur"]
    return found


def _innermost(spans: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Spans that contain no other span of the same thread."""
    found: list[dict[str, Any]] = []
    for event in sorted(spans, key=lambda event: (event["tid"], event["ts"], -event["dur"])):
        last = found[-1] if found else None
        if last and last["tid"] == event["tid"] and event["ts"] + event["dur"] <= last["ts"] + last["dur"]:
            found[-1] = event
        else:
            found.append(event)
    return found
