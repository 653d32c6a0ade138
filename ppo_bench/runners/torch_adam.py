"""Adam on the one vector that holds every parameter."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor
from torch.optim.adam import adam


@dataclass
class Adam:
    """Adam's state and step, by the function behind `torch.optim.Adam`.

    That class imports PyTorch's compiler as it is made, which takes about as long as importing PyTorch does.
    """

    mean: Tensor
    """`[P]`, of gradients."""
    variance: Tensor
    """`[P]`, of gradients, uncentred."""
    count: Tensor
    """Steps made, a scalar."""
    learning_rate: Tensor
    """A scalar tensor, so that it can change between replays of a CUDA graph."""
    eps: float
    fused: bool
    """One kernel; else operation by operation."""
    capturable: bool
    """Whether a step can be part of a CUDA graph."""
    weight_decay: float = 0.0
    """Part of the parameters that a step takes away, times the learning rate (Loshchilov and Hutter 2019)."""

    def step(self, params: Tensor, gradient: Tensor) -> None:
        """Change `params [P]` and the state."""
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
