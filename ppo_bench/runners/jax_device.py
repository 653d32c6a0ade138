"""Selection of JAX's device and precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.precision import NO_TF32, Precision
from ppo_bench.mathematics.shards import SINGLE_SHARD, Shard
from ppo_bench.tuning.machine import has_nvidia_gpu


def set_precision(precision: Precision) -> str:
    """Set JAX's precision flags in this process, and return its name for the precision of matrix products."""
    jax.config.update("jax_enable_x64", _has_64_bits(precision))
    jax.config.update("jax_default_matmul_precision", _matmul_precision(precision))
    return _matmul_precision(precision)


@contextmanager
def in_precision(precision: Precision) -> Iterator[None]:
    """A context with the precision flags that `set_precision` would set."""
    with jax.enable_x64(_has_64_bits(precision)), jax.default_matmul_precision(_matmul_precision(precision)):
        yield


def _has_64_bits(precision: Precision) -> bool:
    return precision.parameters == "float64"


def _matmul_precision(precision: Precision) -> str:
    # "default" means TF32 on GPUs that have it. "tensorfloat32" would leave products compiled by Triton in float32.
    return "default" if precision.tf32 else "highest"


def pick_devices(device: str, precision: Precision, count: int, shard: Shard = SINGLE_SHARD) -> list[jax.Device]:
    """`count` devices of the platform that `device` names, an equal number of each of `shard.count` processes.

    Raises `ConfigError` if there are fewer.
    """
    first = pick_device(device, precision)
    if count == 1:
        return [first]
    there, each = jax.devices(first.platform), count // shard.count
    by_process = [[one for one in there if one.process_index == process] for process in range(shard.count)]
    fewest = min(by_process, key=len)
    if len(fewest) < each:
        raise ConfigError(f"devices={count}: JAX sees {', '.join(map(str, fewest))}; use at most {len(fewest)}")
    return [one for own in by_process for one in own[:each]]


def pick_device(device: str, precision: Precision) -> jax.Device:
    """The device named `device`: auto, cpu, cuda or cuda:<i>.

    Raises `ConfigError` if it does not exist or does not support `precision`.
    """
    try:
        local_devices = jax.local_devices()
    except (RuntimeError, AssertionError) as error:  # can happen even if no GPU is requested
        reason = (str(error) or "it finds nothing to run on").splitlines()[0]
        raise ConfigError(f"device={device}: JAX cannot begin ({reason}): JAX_PLATFORMS=cpu leaves out GPUs") from error
    if device == "auto" and has_nvidia_gpu() and local_devices[0].platform == "cpu":
        raise ConfigError(
            "device=auto: this machine has an NVIDIA GPU and JAX sees none: pip install 'ppo-bench[jax-cuda]', "
            "or use device=cpu"
        )
    platform, _, index = device.partition(":")
    try:
        picked = jax.local_devices(backend=None if device == "auto" else platform)[int(index or 0)]
    except (RuntimeError, IndexError) as error:
        raise ConfigError(f"device={device}: JAX sees {', '.join(map(str, local_devices))}; use device=cpu") from error
    if precision.tf32 and (picked.platform != "gpu" or float(picked.compute_capability) < 8.0):
        raise ConfigError(NO_TF32)
    return picked


def without_long_integers(obs: np.ndarray) -> np.ndarray:
    """`obs` as floats if they are integers of 64 bits, which JAX would cut to their last 32."""
    return obs.astype(np.float64) if obs.dtype in (np.int64, np.uint64) else obs
