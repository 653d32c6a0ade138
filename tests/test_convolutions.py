"""Convolutions of many images in JAX on a CPU: outputs and gradients equal PyTorch's, and little memory is needed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from ppo_bench.networks.flax.layers import Conv
from ppo_bench.tuning.jax_convolutions import convolve


@pytest.mark.parametrize("by_products", [True, False], ids=["by products", "by XLA"])
@pytest.mark.parametrize("images", [1, 24, 23])  # 23 is prime: they go one by one
@pytest.mark.parametrize(("inputs", "layer"), [(4, Conv(32, 8, 4)), (16, Conv(16, 3, 1, padding=1))])
def test_sums_and_gradients_are_those_of_pytorch(inputs: int, layer: Conv, images: int, by_products: bool) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(images, 44, 40, inputs))
    weight = rng.normal(size=(layer.features, layer.kernel, layer.kernel, inputs))
    there, theirs = (torch.from_numpy(array).requires_grad_() for array in (x, weight))
    channels_first = there.permute(0, 3, 1, 2), theirs.permute(0, 3, 1, 2)
    expected = torch.nn.functional.conv2d(*channels_first, stride=layer.stride, padding=layer.padding)
    expected.square().sum().backward()
    with jax.enable_x64(True):
        x_, weight_ = jnp.asarray(x), jnp.asarray(weight)

        def sums(x: jax.Array, weight: jax.Array) -> Any:
            own = {"kernel": jnp.moveaxis(weight, 0, -1), "bias": jnp.zeros(layer.features)}
            return layer.clone(by_products=by_products).apply({"params": own}, x)

        assert_allclose(sums(x_, weight_), expected.detach().permute(0, 2, 3, 1), rtol=1e-12, atol=1e-10)
        gradients = jax.jit(jax.grad(lambda x, weight: (sums(x, weight) ** 2).sum(), (0, 1)))(x_, weight_)
    assert there.grad is not None
    assert theirs.grad is not None
    assert_allclose(gradients[0], there.grad, rtol=1e-12, atol=1e-9)
    assert_allclose(gradients[1], theirs.grad, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("images", [256, 251])
def test_gradients_of_parts_are_not_added_up_in_the_layers_type(images: int) -> None:
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.integers(0, 256, (images, 84, 84, 4)), jnp.uint8)
    weight = jnp.asarray(rng.normal(size=(32, 8, 8, 4)), jnp.bfloat16)

    def mean(weight: jax.Array) -> jax.Array:
        return convolve(x, weight, 4, 0, jnp.dtype("float32")).mean()

    gradient = jax.jit(jax.grad(mean))

    precise = gradient(weight.astype(jnp.float32))
    assert_allclose(gradient(weight).astype(jnp.float32), precise, rtol=2**-8)  # as rounded once


def test_the_gradient_of_many_images_keeps_slices_of_few() -> None:
    x, weight = jnp.zeros((256, 64, 64, 16)), jnp.zeros((16, 3, 3, 16))

    def squares(x: jax.Array, weight: jax.Array) -> jax.Array:
        return (convolve(x, weight, 1, 1, x.dtype) ** 2).sum()

    gradient = jax.grad(squares, (0, 1))
    memory = jax.jit(gradient).lower(x, weight).compile().memory_analysis()
    slices = 256 * 64 * 64 * weight[0].nbytes
    assert memory is not None
    assert memory.temp_size_in_bytes < slices / 2  # all at once: twice the slices
