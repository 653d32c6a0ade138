"""Optimisations undone, so that it can be measured what each of them brings.

Each function here changes how this process executes PPO, not what it computes: a training goes on as it would, slower.
Nothing but `bench ablation=true` calls them, in processes of their own, before a runner is built. They replace names in
the modules that execute: that way the code that trains has no branches for them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


class _Changed:
    """A module with other members in place of some."""

    def __init__(self, module: Any, **members: Any) -> None:
        self.__dict__.update(members)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def give_memory_back() -> None:
    """Leave freed blocks to glibc, which gives large ones back to the system at once."""
    runner: Any = import_module("ppo_bench.runners.torch")

    runner.keep_freed_memory = lambda: False


def store_floats() -> None:
    """Keep frames as floats, four times their size."""
    runner: Any = import_module("ppo_bench.runners.torch")

    allocate = runner.allocate

    def of_floats(problem: Any, device: Any) -> Any:
        memory = allocate(problem, device)
        return memory | {"obs": memory["obs"].to(memory["values"].dtype)}

    runner.allocate = of_floats


def convolve_channels_first() -> None:
    """Convolve in PyTorch's usual layout; the first layer's copy into it is part of the price."""
    networks: Any = import_module("ppo_bench.networks.torch")

    functional = networks.F

    def conv2d(x: Any, weight: Any, *others: Any) -> Any:
        return functional.conv2d(x.contiguous(), weight.contiguous(), *others)

    networks.F = _Changed(functional, conv2d=conv2d)


def shuffle_on_host() -> None:
    """Draw the minibatches in NumPy and carry their indices to the device."""
    import numpy as np
    import torch

    from ppo_bench.mathematics import noise

    runner: Any = import_module("ppo_bench.runners.torch")

    def permutations(_: Any, *arguments: Any) -> Any:
        on_host = noise.permutations(np, *(x.cpu().numpy() for x in arguments))
        return torch.from_numpy(on_host).to(arguments[0].device)

    runner.noise = _Changed(noise, permutations=permutations)


def adam_by_operations() -> None:
    """Take Adam's step operation by operation, not in one fused kernel."""
    runner: Any = import_module("ppo_bench.runners.torch")
    adam = runner.Adam

    def unfused(mean: Any, variance: Any, count: Any, learning_rate: Any, eps: float, *_: bool) -> Any:
        # A count on a GPU would be fetched from there in every step, which Adam's usual form does not do.
        return adam(mean, variance, count.cpu(), learning_rate.cpu(), eps, fused=False, capturable=False)

    runner.Adam = unfused


# --- JAX --------------------------------------------------------------------------------------------------------------


def copy_buffers() -> None:
    """Let no program reuse the memory of what it is given: the storage of a rollout is copied in every step."""
    import jax

    runner: Any = import_module("ppo_bench.runners.jax")

    def without_donation(function: Any, **options: Any) -> Any:
        return jax.jit(function, **{k: v for k, v in options.items() if k != "donate_argnums"})

    runner.jax = _Changed(jax, jit=without_donation)


def convolve_by_library() -> None:
    """Take XLA's own convolutions, on a CPU too."""
    import jax

    networks: Any = import_module("ppo_bench.networks.jax")

    def convolve(layer: Any, x: Any, weight: Any, dtype: Any) -> Any:
        sides = [(layer.padding, layer.padding)] * 2
        sums = jax.lax.conv_general_dilated(
            x.astype(weight.dtype),
            weight,
            (layer.stride, layer.stride),
            sides,
            dimension_numbers=("NHWC", "OHWI", "NHWC"),
        )
        return sums.astype(dtype)

    networks.convolve = convolve


def unroll_update() -> None:
    """Lay every epoch and minibatch out in the program, not in a loop."""
    import jax

    learning: Any = import_module("ppo_bench.runners.jax_learning")

    def scan(function: Any, *arguments: Any, **options: Any) -> Any:
        return jax.lax.scan(function, *arguments, **options | {"unroll": True})

    learning.jax = _Changed(jax, lax=_Changed(jax.lax, scan=scan))


HANDICAPS: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        give_memory_back,
        store_floats,
        convolve_channels_first,
        shuffle_on_host,
        adam_by_operations,
        copy_buffers,
        convolve_by_library,
        unroll_update,
    )
}
