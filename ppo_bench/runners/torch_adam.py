"""Adam on a single vector of all parameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.optim.adam import adam

from ppo_bench.algorithms.base import Hyperparameters


@dataclass
class Adam:
    """State and step of Adam, by the functional form of `torch.optim.Adam`.

    The class itself is avoided: its constructor imports PyTorch's compiler, which takes about as long as importing
    PyTorch.
    """

    mean: Tensor
    """Running mean of gradients, `[P]`."""
    variance: Tensor
    """Running uncentred variance of gradients, `[P]`."""
    count: Tensor
    """Number of steps done, a scalar."""
    learning_rate: Tensor
    """Learning rate, a scalar tensor, so that it can change between replays of a CUDA graph."""
    eps: float
    fused: bool
    """Whether a step is one fused kernel, instead of one kernel per operation."""
    capturable: bool
    """Whether a step can be recorded in a CUDA graph."""
    weight_decay: float = 0.0
    """Decoupled weight decay: a step subtracts this times the learning rate times the parameters
    (Loshchilov and Hutter 2019)."""

    @classmethod
    def after_steps(
        cls, steps: int, mean: Tensor, variance: Tensor, hp: Hyperparameters, uses_cuda_graphs: bool
    ) -> Adam:
        """State after `steps` steps. The learning rate is 0; it is set before every update."""
        on_gpu, device = mean.device.type == "cuda", mean.device
        # The fused GPU kernel reads the learning rate as float32, which is too coarse for float64 parameters.
        fused = not on_gpu or mean.dtype != torch.float64
        learning_rate = torch.zeros((), dtype=torch.float32 if on_gpu and fused else torch.float64, device=device)
        # The fused kernels require a float32 count. Unfused Adam computes powers in the count's own dtype.
        count = torch.tensor(float(steps), dtype=torch.float32 if fused else torch.float64, device=device)
        capturable = uses_cuda_graphs or not fused
        return cls(mean, variance, count, learning_rate, hp.adam_eps, fused, capturable, hp.weight_decay)

    def step(self, params: Tensor, gradient: Tensor) -> None:
        """Update `params [P]` and the state in place."""
        if self.weight_decay:
            params.mul_(1.0 - self.learning_rate * self.weight_decay)
        adam(
            [params],
            [gradient],
            [self.mean],
            [self.variance],
            [],
            [self.count],
            foreach=False,
            capturable=self.capturable,
            fused=self.fused,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=self.learning_rate,
            weight_decay=0.0,
            eps=self.eps,
            maximize=False,
        )
