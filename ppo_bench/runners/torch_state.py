"""State of a learner in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ppo_bench.networks.torch.ops import Params
from ppo_bench.runners.torch_adam import Adam


@dataclass
class TorchTrainState:
    """State of the learner between two calls; recorded CUDA graphs refer to its tensors by address."""

    flat_params: Tensor
    """All trained parameters as a vector, `[P]`."""
    arrays: Params
    """Parameters (views of `flat_params`) and frozen arrays, by name."""
    frozen: Params
    adam: Adam
    statistics: Params
    """Statistics of the algorithm."""
    carry: Params
    """Carry (recurrent state) of the network, `[N, ...]`."""
    rollout_buffer: Params
    """Rollout buffer; see `rollout_array_specs`."""
    rows: list[Params]
    """Views `[N, ...]` of the buffer for each step, by name."""
    noise: tuple[Tensor, ...] = ()
    """Action noise `[N, A]` of each step of this iteration."""
