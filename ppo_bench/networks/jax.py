"""A `NetworkSpec` executed by JAX, as a flax module whose parameters are in the neutral layout."""

from __future__ import annotations

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.networks.spec import Activation, Conv, Linear, NetworkSpec
from ppo_bench.ppo import Head

Params = dict[str, jax.Array]
Carry = tuple[()]

_ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {"tanh": jnp.tanh, "relu": nn.relu}


class Network(nn.Module):
    """`spec`, computed in `dtype`."""

    spec: NetworkSpec
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Carry, start: jax.Array | None) -> tuple[Head, jax.Array, Carry]:
        """The policy's head, values `[B]` and the carry, from observations `[B, ...]` as `spec.arrange` gives them."""
        spec = self.spec
        params = {p.name: self.param(p.name, nn.initializers.zeros, p.shape, self.dtype) for p in spec.parameters}
        x = obs.astype(self.dtype) / 255.0 if spec.uint8 else obs.astype(self.dtype)
        for layer in spec.convolutions:
            x = nn.relu(convolve(layer, x, params[f"{layer.name}.weight"]) + params[f"{layer.name}.bias"])
        x = x.reshape(x.shape[0], -1)
        x = _chain(spec.trunk, params, x)
        output = _chain(spec.actor, params, x)
        value = _chain(spec.critic, params, x).squeeze(-1)
        head = (output,) if spec.discrete else (output, params["actor.log_std"])
        return head, value, carry


def apply(
    spec: NetworkSpec, params: Params, obs: jax.Array, carry: Carry, start: jax.Array | None
) -> tuple[Head, jax.Array, Carry]:
    """See `Network.__call__`."""
    network = Network(spec, params["critic.0.bias"].dtype)
    output: tuple[Head, jax.Array, Carry] = network.apply({"params": params}, obs, carry, start)  # type: ignore[assignment]
    return output


def _chain(layers: tuple[Linear, ...], params: Params, x: jax.Array) -> jax.Array:
    for layer in layers:
        x = x @ params[f"{layer.name}.weight"].T + params[f"{layer.name}.bias"]
        if layer.activation:
            x = _ACTIVATIONS[layer.activation](x)
    return x


def convolve(layer: Conv, x: jax.Array, weight: jax.Array) -> jax.Array:
    """A convolution without padding of channels-last images `[B, H, W, C]` with `weight [out, k, k, C]`.

    XLA convolves with cuDNN on a GPU. On a CPU its gradients fall into a slow path, 10 times slower and worse in a loop
    (docs/performance.md), so there the same sum is written as matrix products.
    """
    if jax.default_backend() != "cpu":
        strides = (layer.stride, layer.stride)
        return jax.lax.conv_general_dilated(x, weight, strides, "VALID", dimension_numbers=("NHWC", "OHWI", "NHWC"))
    return _convolve_by_products(x, weight, layer.stride)


def _convolve_by_products(x: jax.Array, weight: jax.Array, stride: int) -> jax.Array:
    """Blocks of stride x stride pixels become channels; then one product for each row of the kernel."""
    batch, height, width, channels = x.shape
    outputs, kernel = weight.shape[:2]
    if kernel % stride:
        raise ValueError(f"a kernel of {kernel} is no multiple of its stride {stride}")
    rows, columns, taps = height // stride, width // stride, kernel // stride
    x = x[:, : rows * stride, : columns * stride].reshape(batch, rows, stride, columns, stride, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, -1)
    blocks = weight.reshape(outputs, taps, stride, taps, stride, channels).transpose(1, 3, 2, 4, 5, 0)
    matrices = blocks.reshape(taps, -1, outputs)
    rows, columns = rows - taps + 1, columns - taps + 1
    x = jnp.concatenate([x[:, :, j : j + columns] for j in range(taps)], -1)
    products = [x[:, i : i + rows].reshape(batch * rows * columns, -1) @ matrices[i] for i in range(taps)]
    return sum(products[1:], products[0]).reshape(batch, rows, columns, outputs)
