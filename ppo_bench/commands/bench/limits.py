"""Lower bound of the time that an iteration computes: its floating-point operations at the best measured rate."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple

from ppo_bench.commands.bench.programs import network_of
from ppo_bench.common.workers import RankWorkers
from ppo_bench.configuration.config import Config

REPEATS = 7
PRODUCT_SIZES = {"cpu": 2048, "cuda": 8192}
"""Rows and columns of the large matrix product, by kind of device; the time of its launch is negligible."""


class ComputeLimit(NamedTuple):
    """The floating-point operations of an iteration, and the rate at which the machine can execute them."""

    flop: float
    """Floating-point operations of an iteration: a forward pass for each step, and a forward and a backward pass for
    each transition in every epoch."""
    flop_per_second: float
    """The higher of two rates: that of a large matrix product, and that of the network's own forward and backward pass
    on a minibatch (if it has convolutions)."""

    @property
    def seconds(self) -> float:
        """Minimum duration of the network's computation in one iteration, in seconds."""
        return self.flop / self.flop_per_second


def measure_compute_limit(config: Config) -> ComputeLimit:
    """The limit of a configuration, measured by PyTorch in a process of its own with all threads."""
    with RankWorkers("the limit's measurement", 1, _measure_in_worker, config) as worker:
        measured: ComputeLimit = worker.receive()[0]
    return measured


def _measure_in_worker(config: Config) -> Generator[ComputeLimit, None, None]:
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from ppo_bench.mathematics.precision import PRECISIONS
    from ppo_bench.networks.torch.ops import TorchOps
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
    for array in carry.values():  # networks that learn from sequences backpropagate through the carry
        array.requires_grad_(network.learns_from_sequences)

    def forward() -> Any:
        policy_outputs, values, _ = network.forward(ops, params, obs, carry, start)
        return policy_outputs[0].sum() + values.sum()

    def forward_and_backward() -> None:
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
    if network.convolves:
        rates.append(flop(forward_and_backward) / seconds(forward_and_backward))
    per_row, per_row_learnt = flop(forward) / rows, flop(forward_and_backward) / rows
    steps = config.ppo.batch_size + config.ppo.num_envs  # includes the values after the last step
    total = steps * per_row + config.ppo.update_epochs * config.ppo.batch_size * per_row_learnt
    yield ComputeLimit(total, max(rates))
