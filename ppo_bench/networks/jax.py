"""A `NetworkSpec` executed by JAX, as a flax module whose parameters are in the neutral layout."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from ppo_bench.networks.layers import Activation, Conv, ImageLayer, Linear, MaxPool
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.ppo import Head

Params = dict[str, jax.Array]
Carry = tuple[()]

SLICES_BYTES = 4 * 2**20
"""At most, of the images that a convolution on a CPU takes at a time; less would part the 8 frames of an Atari step."""

_ACTIVATIONS: dict[Activation, Callable[[jax.Array], jax.Array]] = {"tanh": jnp.tanh, "relu": nn.relu}


class Network(nn.Module):
    """`spec`, with parameters, head and values of type `dtype` and layers that compute in the type `layers`."""

    spec: NetworkSpec
    dtype: jnp.dtype
    layers: jnp.dtype

    @nn.compact
    def __call__(self, obs: jax.Array, carry: Carry, start: jax.Array | None) -> tuple[Head, jax.Array, Carry]:
        """The policy's head, values `[B]` and the carry, from observations `[B, ...]` as `spec.arrange` gives them."""
        spec = self.spec
        params = {p.name: self.param(p.name, nn.initializers.zeros, p.shape, self.dtype) for p in spec.parameters}
        log_std = params.get("actor.log_std")  # no layer's: never rounded
        params |= {name: params[name] / 255.0 for name in spec.scaled_weights}
        params = {name: parameter.astype(self.layers) for name, parameter in params.items()}
        x = obs
        for layer in spec.convolutions:
            x = self._image_layer(layer, params, x)
        x = x.reshape(x.shape[0], -1).astype(self.layers)
        x = self._chain(spec.trunk, params, x)
        output = self._chain(spec.actor, params, x).astype(self.dtype)
        values = self._chain(spec.critic, params, x).squeeze(-1).astype(self.dtype)
        return ((output,) if log_std is None else (output, log_std)), values, carry

    def _image_layer(self, layer: ImageLayer, params: Params, x: jax.Array) -> jax.Array:
        if isinstance(layer, MaxPool):
            return max_pool(x)
        if isinstance(layer, Conv):
            sums = convolve(layer, x, params[f"{layer.name}.weight"], self.dtype)
            y = (sums + params[f"{layer.name}.bias"]).astype(self.layers)
        else:
            y = x + self._image_layer(layer.second, params, self._image_layer(layer.first, params, nn.relu(x)))
        return _ACTIVATIONS[layer.activation](y) if layer.activation else y

    def _chain(self, layers: tuple[Linear, ...], params: Params, x: jax.Array) -> jax.Array:
        for layer in layers:
            sums = jnp.matmul(x, params[f"{layer.name}.weight"].T, preferred_element_type=self.dtype)
            x = (sums + params[f"{layer.name}.bias"]).astype(self.layers)
            if layer.activation:
                x = _ACTIVATIONS[layer.activation](x)
        return x


def apply(
    spec: NetworkSpec, params: Params, obs: jax.Array, carry: Carry, start: jax.Array | None, layers: jnp.dtype
) -> tuple[Head, jax.Array, Carry]:
    """See `Network.__call__`."""
    network = Network(spec, params["critic.0.bias"].dtype, layers)
    output: tuple[Head, jax.Array, Carry] = network.apply({"params": params}, obs, carry, start)  # type: ignore[assignment]
    return output


def convolve(layer: Conv, x: jax.Array, weight: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """A convolution of channels-last `x [B, H, W, C]` by `weight [out, k, k, C]`, in its type; sums of type `dtype`.

    XLA convolves with cuDNN on a GPU. On a CPU its gradients fall into a slow path, 10 times slower and worse in a
    loop, so there the same sum is written as matrix products: of a few images at a time where there are many, so that
    slices stay in the cache and the gradient makes them anew instead of keeping them all (docs/performance.md).
    """
    device = jax.config.jax_default_device  # type: ignore[attr-defined]  # which runners set
    if (device.platform if device else jax.default_backend()) != "cpu":
        strides, padding = (layer.stride, layer.stride), [(layer.padding, layer.padding)] * 2
        layout, x = ("NHWC", "OHWI", "NHWC"), x.astype(weight.dtype)
        return jax.lax.conv_general_dilated(x, weight, strides, padding, dimension_numbers=layout).astype(dtype)
    # Gradients of parts are added up in the type of sums, not in that of the layers.
    batch, wide, kind = x.shape[0], weight.astype(dtype), weight.dtype

    def one(part: jax.Array) -> jax.Array:
        return _convolve_by_products(layer, part, wide.astype(kind), dtype)

    slices = math.prod(layer.output_size(size) for size in x.shape[1:3]) * weight[0].nbytes
    together = max(n for n in range(1, batch + 1) if batch % n == 0 and (n == 1 or n * slices <= SLICES_BYTES))
    if together == batch:
        return one(x)
    sums = jax.lax.map(jax.checkpoint(one), x.reshape(batch // together, together, *x.shape[1:]))
    return sums.reshape(batch, *sums.shape[2:])


def max_pool(x: jax.Array) -> jax.Array:
    """`MaxPool` of channels-last `x [B, H, W, C]`: columns, then rows, where the first of equal pixels stays.

    The gradient of `lax.reduce_window` takes 5 times as long on a CPU (docs/performance.md).
    """
    for axis in (2, 1):
        padding = [(1, 1) if i == axis else (0, 0) for i in range(4)]
        padded = jnp.pad(x, padding, constant_values=-jnp.inf)
        last = 2 * ((x.shape[axis] + 1) // 2) - 1
        x, *others = (jax.lax.slice_in_dim(padded, i, i + last, 2, axis) for i in range(3))
        for other in others:
            x = jnp.where(other > x, other, x)
    return x


def _convolve_by_products(layer: Conv, x: jax.Array, weight: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`convolve`: blocks of stride x stride pixels become channels; then one product for each row of the kernel."""
    outputs, kernel, stride, sides = layer.outputs, layer.kernel, layer.stride, (layer.padding, layer.padding)
    if kernel % stride:
        raise ValueError(f"a kernel of {kernel} is no multiple of its stride {stride}")
    x = jnp.pad(x.astype(weight.dtype), ((0, 0), sides, sides, (0, 0)))
    batch, height, width, channels = x.shape
    rows, columns, taps = height // stride, width // stride, kernel // stride
    x = x[:, : rows * stride, : columns * stride].reshape(batch, rows, stride, columns, stride, channels)
    x = x.transpose(0, 1, 3, 2, 4, 5).reshape(batch, rows, columns, -1)
    blocks = weight.reshape(outputs, taps, stride, taps, stride, channels).transpose(1, 0, 3, 2, 4, 5)
    matrices = blocks.reshape(taps, outputs, -1)
    rows, columns = rows - taps + 1, columns - taps + 1
    x = jnp.concatenate([x[:, :, j : j + columns] for j in range(taps)], -1)
    products = [
        _product(x[:, i : i + rows].reshape(batch * rows * columns, -1), matrices[i], dtype) for i in range(taps)
    ]
    return sum(products[1:], products[0]).reshape(batch, rows, columns, outputs)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x: jax.Array, matrix: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`x [B, K]` times `matrix [N, K]`, transposed; sums of type `dtype`.

    XLA makes a gradient `[N, K]` of few rows twice as fast as one `[K, N]`, and forward the product by `[K, N]`.
    """
    turned = jax.lax.optimization_barrier(matrix.T)  # else XLA folds the transposition into the product
    return jnp.matmul(x, turned, preferred_element_type=dtype)


def _product_forward(
    x: jax.Array, matrix: jax.Array, dtype: jnp.dtype
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return _product(x, matrix, dtype), (x, matrix)


def _product_backward(
    dtype: jnp.dtype, saved: tuple[jax.Array, jax.Array], sums: jax.Array
) -> tuple[jax.Array, jax.Array]:
    x, matrix = saved
    return jnp.matmul(sums, matrix).astype(x.dtype), jnp.matmul(sums.T, x).astype(matrix.dtype)


_product.defvjp(_product_forward, _product_backward)
