"""A policy that does not learn, executed by PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ppo_bench.networks import torch as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.ppo import Head
from ppo_bench.precision import PRECISIONS
from ppo_bench.runners.base import Arrays, Policy, fitting
from ppo_bench.runners.torch import Compiler, pick_device, set_precision, set_threads


def policy(
    network: NetworkSpec,
    arrays: Arrays,
    precision: str,
    device: str,
    num_threads: int | None,
    compiler: Compiler | None = None,
) -> Policy:
    """See `Framework.policy`."""
    arithmetic = PRECISIONS[precision]
    picked = pick_device(device, arithmetic)
    set_threads(network, num_threads)
    set_precision(arithmetic)
    dtype, layers = getattr(torch, arithmetic.parameters), getattr(torch, arithmetic.layers)
    params = {
        p.name: torch.tensor(fitting(arrays, f"params.{p.name}", p.shape), dtype=dtype, device=picked)
        for p in network.parameters
    }
    forward: Callable[..., Any] = functools.partial(networks.apply, network, layers=layers)
    if compiler and picked.type == "cuda":  # as in training
        forward = compiler(forward)

    @torch.inference_mode()
    def act(obs: np.ndarray) -> tuple[Head, np.ndarray]:
        head, values, _ = forward(params, torch.from_numpy(obs).to(picked), carry=(), start=None)
        return tuple(part.cpu().numpy() for part in head), values.cpu().numpy()

    return act
