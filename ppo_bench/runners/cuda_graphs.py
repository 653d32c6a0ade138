"""CUDA graphs of functions: recorded once, then replayed with one launch instead of one launch per kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

WARM_UP_CALLS = 3  # the first compiles and allocates the libraries' workspaces; PyTorch's documentation uses 3


class GraphedCallable:
    """`function(fixed, *inputs)` as a CUDA graph.

    A graph reads and writes the memory addresses with which it was recorded. Each call copies its inputs into the
    recorded input tensors. If a `fixed` object is not identical to that of the last call, the graph is recorded again:
    the tensors in `fixed` may change their values but not their addresses. Results are at the same addresses in every
    call.

    Warm-up runs the function. `changed(*fixed)` are the tensors that it modifies, which are restored afterwards.
    """

    def __init__(self, function: Callable[..., Any], changed: Callable[..., Sequence[Tensor]] = lambda *_: ()) -> None:
        self._function = function
        self._changed = changed
        # A stream of its own: a library's workspace of a shared stream would belong to the first graph's memory pool.
        self._stream = torch.cuda.Stream()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._fixed: tuple[Any, ...] = ()
        self._inputs: list[Tensor] = []
        self._outputs: Any = None

    def __call__(self, fixed: Sequence[Any], *inputs: Tensor) -> Any:
        """The function's result, which is valid until the next call."""
        if self._graph is None or any(a is not b for a, b in zip(fixed, self._fixed, strict=True)):
            self._graph = self._record(tuple(fixed), inputs)
        for static, value in zip(self._inputs, inputs, strict=True):
            static.copy_(value, non_blocking=True)
        self._graph.replay()
        return self._outputs

    @torch.inference_mode(False)  # tensors that a recording allocates are written to outside inference mode
    @torch.no_grad()
    def _record(self, fixed: tuple[Any, ...], inputs: Sequence[Tensor]) -> torch.cuda.CUDAGraph:
        self._graph = self._outputs = None  # frees the memory of an earlier recording first
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
        # With thread_local, CUDA calls of other threads, such as JAX's, do not invalidate the recording.
        with torch.cuda.graph(graph, stream=self._stream, capture_error_mode="thread_local"):
            self._outputs = self._function(fixed, *self._inputs)
        return graph
