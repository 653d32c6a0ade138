"""A policy as an ONNX file, which programs without PyTorch, JAX or ppo_bench can run."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.runs.play import load_obs_stats


class Deployed(nn.Module):
    """A policy from the environment's observations to its outputs; it includes the normalisation of observations."""

    def __init__(self, network: NetworkSpec, arrays: Arrays, stats: normalize.RunningStats | None, clip: float) -> None:
        """`arrays` are those of a checkpoint; `stats` normalise observations, None leaves them as they are."""
        super().__init__()
        self.network, self._clip = network, clip
        self._ops = TorchOps(torch.float32, torch.float32)
        self._ops.function(network.module)
        self._params = {
            p.name: torch.tensor(arrays[f"params.{p.name}"], dtype=torch.float32) for p in network.parameters
        }
        self._stats = normalize.RunningStats(*(torch.tensor(x, dtype=torch.float64) for x in stats)) if stats else None

    def forward(self, obs: Tensor, *carry_inputs: Tensor) -> tuple[Tensor, ...]:
        """The policy's outputs, values and the next carry, from `obs [N, ...]`, the episode-start flags `[N]` and the
        carry."""
        if self._stats:
            obs = normalize.normalize_observations(torch, self._stats, obs.double(), self._clip).float()
        names = [array.name for array in self.network.carry]
        episode_start, carry = (
            (carry_inputs[0], dict(zip(names, carry_inputs[1:], strict=True))) if carry_inputs else (None, {})
        )
        found = self.network.step(
            self._ops, self._params, self.network.to_input_layout(obs, torch), carry, episode_start
        )
        return (*found.policy_outputs, found.values, *(found.carry[name] for name in names))


def deployed(config: Config, arrays: Arrays, env: VectorEnv) -> Deployed:
    """The policy of a checkpoint's `arrays`, for the spaces of `env`."""
    network = config.network_for(env)
    network.require("torch")
    return Deployed(network, arrays, load_obs_stats(config, arrays, env), config.ppo.obs_clip)


def write_onnx(policy: Deployed, dtype: Any, path: Path) -> None:
    """Write `policy`, for observations of NumPy's `dtype`, to `path`.

    The file's inputs are `obs [N, ...]`, as the environment returns them, and of a network with a carry `start [N]`,
    1 where an episode begins, and `carry.<name>`, zeros at first. Its outputs are `logits`, or `mean` and
    `log_std`, `values`, and `next.<name>`.
    """
    network, rows = policy.network, torch.export.Dim("N")
    names = [array.name for array in network.carry]
    obs = torch.from_numpy(np.zeros((2, *network.observation_shape), dtype))
    carry_inputs = (torch.zeros(2), *(torch.zeros((2, *array.shape)) for array in network.carry)) if names else ()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns that torchvision is not installed
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of PyTorch's exporter about PyTorch
        torch.onnx.export(
            policy.eval(),
            (obs, *carry_inputs),
            path,
            input_names=["obs", *(["start"] if names else []), *(f"carry.{name}" for name in names)],
            output_names=[
                *(["logits"] if network.discrete else ["mean", "log_std"]),
                *("values", *(f"next.{name}" for name in names)),
            ],
            dynamic_shapes=({0: rows}, tuple({0: rows} for _ in carry_inputs)) if names else ({0: rows},),
            external_data=False,
            dynamo=True,
            verbose=False,
        )
