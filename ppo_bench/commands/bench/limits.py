"""How fast an iteration could be here: its arithmetic at the best rate that convolutions or products reach."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

from ppo_bench.commands.bench.programs import network_of
from ppo_bench.configuration.config import Config

REPEATS = 7
PRODUCT_SIZES = {"cpu": 2048, "cuda": 8192}
"""Of the large product, by kind of device: far more than what launching it takes."""


class Arithmetic(NamedTuple):
    """What an iteration has to compute, and how fast the machine can."""

    flop: float
    """Floating-point operations: a forward pass of each step, and forward and backward in every epoch."""
    flop_per_second: float
    """The best of a large product and of the network's own convolutions on a minibatch, forward and backward."""

    @property
    def seconds(self) -> float:
        """Of the network alone in one iteration."""
        return self.flop / self.flop_per_second


def arithmetic(config: Config) -> Arithmetic:
    """Measured in a process of its own, with all threads. Needs PyTorch."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_arithmetic, config).result()


def _arithmetic(config: Config) -> Arithmetic:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ppo_bench.mathematics.precision import PRECISIONS
    from ppo_bench.networks.torch import TorchOps
    from ppo_bench.runners.torch_device import pick_device, set_precision

    precision = PRECISIONS[config.root.precision]
    device = pick_device(config.root.device, precision)
    dtype, layers = getattr(torch, precision.parameters), getattr(torch, precision.layers)
    set_precision(precision)
    network = network_of(config)
    rows = config.ppo.minibatch_size
    params = {
        p.name: (0.01 * torch.randn(p.shape, dtype=dtype, device=device)).requires_grad_() for p in network.parameters
    }
    kind = torch.uint8 if network.uint8 else dtype
    obs = torch.ones((rows, *network.input_shape), device=device).to(kind)

    ops, start = TorchOps(dtype, layers), torch.zeros(rows, dtype=dtype, device=device) if network.carry else None
    carry = {c.name: torch.zeros((rows, *c.shape), dtype=dtype, device=device) for c in network.carry}
    for array in carry.values():  # in a sequence the gradient goes on through it
        array.requires_grad_(network.sequences)

    def forward() -> Any:
        head, values, _ = network.forward(ops, params, obs, carry, start)
        return head[0].sum() + values.sum()

    def both() -> None:
        forward().backward()

    def flop(work: Callable[[], Any]) -> int:
        with FlopCounterMode(display=False) as counter:
            work()
        return counter.get_total_flops()

    def seconds(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(REPEATS):
            started = time.perf_counter()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            times.append(time.perf_counter() - started)
        return min(times)

    size = PRODUCT_SIZES[device.type]
    factor = torch.randn((size, size), dtype=layers, device=device)
    rates = [2 * size**3 / seconds(lambda: factor @ factor)]
    if network.convolutions:
        rates.append(flop(both) / seconds(both))
    per_row, per_row_learnt = flop(forward) / rows, flop(both) / rows
    steps = config.ppo.batch_size + config.ppo.num_envs  # and the values after the last step
    total = steps * per_row + config.ppo.update_epochs * config.ppo.batch_size * per_row_learnt
    return Arithmetic(total, max(rates))
