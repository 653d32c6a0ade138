"""Functions recorded once as a CUDA graph and replayed: one launch in place of one for every kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

WARM_UP_CALLS = 3  # compilation and the libraries' workspaces happen in the first; PyTorch's documentation takes 3


class Recordable(Protocol):
    """How a learner calls a function: with what stays where it is, and with tensors that are new in every call."""

    def __call__(self, fixed: Sequence[Any], *inputs: Tensor) -> Any:
        """What the function returns; valid until the next call."""


class Replayed:
    """`function(fixed, *inputs)` as a CUDA graph.

    A graph reads and writes the addresses that it was recorded with. So the inputs of a call are copied to where those
    of the recording lay, and other `fixed` objects than the last call's (compared by identity) are recorded anew; their
    tensors may change in value, not in place. What is returned lies at the same addresses in every call.

    Warming up runs the function; `changed(*fixed)` are the tensors that it writes to, and are put back after that.
    """

    def __init__(self, function: Callable[..., Any], changed: Callable[..., Sequence[Tensor]] = lambda *_: ()) -> None:
        self._function = function
        self._changed = changed
        # Its own: what a library keeps for a stream would else be in the memory of whoever recorded there first.
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._fixed: tuple[Any, ...] = ()
        self._inputs: list[Tensor] = []
        self._outputs: Any = None

    def __call__(self, fixed: Sequence[Any], *inputs: Tensor) -> Any:
        """See `Recordable`."""
        if self._graph is None or any(a is not b for a, b in zip(fixed, self._fixed, strict=True)):
            self._graph = self._record(tuple(fixed), inputs)
        for static, given in zip(self._inputs, inputs, strict=True):
            static.copy_(given, non_blocking=True)
        self._graph.replay()
        return self._outputs

    @torch.inference_mode(False)  # what a recording allocates is to be written to outside that mode
    @torch.no_grad()
    def _record(self, fixed: tuple[Any, ...], inputs: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        self._graph = self._outputs = None  # gives the memory of an earlier one back first
        self._fixed, self._inputs = fixed, [x.clone() for x in inputs]
        changed = self._changed(*fixed)
        before = [x.clone() for x in changed]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for _ in range(WARM_UP_CALLS):
                self._function(fixed, *self._inputs)
        torch.cuda.current_stream().wait_stream(self._stream)
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        # What other threads do meanwhile, such as JAX's, is none of the recording's business.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._outputs = self._function(fixed, *self._inputs)
        return graph
