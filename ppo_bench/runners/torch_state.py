"""The state of a training in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ppo_bench.networks.torch import Params
from ppo_bench.runners.torch_adam import Adam
from ppo_bench.runners.torch_opponents import Pool


@dataclass
class TorchTrainState:
    """Everything that changes from one iteration to the next; recorded CUDA graphs know its tensors by address."""

    learnt: Tensor
    """`[P]`, every parameter."""
    arrays: Params
    """Parameters, as views of `learnt`, and frozen arrays by name."""
    frozen: Params
    adam: Adam
    statistics: Params
    """Statistics of the algorithm."""
    carry: Params
    """Memory of the network, `[N, ...]`."""
    memory: Params
    """See `memory_arrays`."""
    rows: list[Params]
    """The memory of each step, `[N, ...]` views of it."""
    pool: Pool | None
    noise: tuple[Tensor, ...] = ()
    """Noise of each step of this iteration, `[N, A]`."""
