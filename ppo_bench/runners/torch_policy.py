"""Inference of a policy in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ppo_bench.mathematics.arrays import Arrays, Tree, load_arrays
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.network import NetworkOutputs, NetworkSpec
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.runners.array_specs import policy_array_specs
from ppo_bench.runners.base import Policy
from ppo_bench.runners.torch_device import own_settings, pick_device, threads_for


def policy(network: NetworkSpec, arrays: Arrays, precision: str, device: str, num_threads: int | None) -> Policy:
    """See `Torch.policy` in ppo_bench/runners/frameworks.py."""
    arithmetic = PRECISIONS[precision]
    picked = pick_device(device, arithmetic)
    threads = threads_for(network.parameters, num_threads)
    dtype, layers = getattr(torch, arithmetic.parameters), getattr(torch, arithmetic.layers)
    own = load_arrays(policy_array_specs(network, arithmetic), arrays)
    params = {name.removeprefix("params."): torch.tensor(array, device=picked) for name, array in own.items()}
    ops = TorchOps(dtype, layers)
    ops.function(network.module)  # here, since a module's parameters are not to be made in inference mode

    def on_device(array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(picked)

    @torch.inference_mode()
    def act(obs: np.ndarray, episode_start: np.ndarray, carry: Tree) -> NetworkOutputs:
        with own_settings(arithmetic, threads):  # a training of this process, or another policy, may have others
            carry_inputs: tuple[Any, Any] = {}, None
            if network.carry:
                carry_inputs = (
                    {name: on_device(array) for name, array in carry.items()},
                    on_device(episode_start).to(dtype),
                )
            policy_outputs, values, after = network.step(ops, params, on_device(obs), *carry_inputs)
            on_host = {name: array.cpu().numpy() for name, array in after.items()}
            return NetworkOutputs(tuple(part.cpu().numpy() for part in policy_outputs), values.cpu().numpy(), on_host)

    return act
