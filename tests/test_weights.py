"""Initial weights: orthogonal, of the right gain, and a function of the seed and their place alone."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from gymnasium import spaces
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics.noise import Stream
from ppo_bench.mathematics.weights import Parameter, initial_weights, orthogonal
from ppo_bench.networks.spec import ImpalaCnn
from ppo_bench.networks.transformer import Trxl

TALL = Parameter("actor.0.weight", (8, 3), 0.01)
WIDE = Parameter("critic.0.weight", (3, 8), 1.0)
SQUARE = Parameter("torso.1.weight", (6, 6), math.sqrt(2))
CONV_TALL = Parameter("torso.0.weight", (32, 2, 2, 3), math.sqrt(2))
CONV_WIDE = Parameter("torso.2.weight", (16, 3, 3, 2), 2.0)
BIAS = Parameter("actor.0.bias", (3,), None)


@pytest.mark.parametrize("parameter", [TALL, WIDE, SQUARE, CONV_TALL, CONV_WIDE], ids=lambda p: str(p.shape))
def test_the_shorter_side_is_orthogonal_with_norm_gain(parameter: Parameter) -> None:
    assert parameter.gain is not None
    weights = initial_weights((parameter,), seed=1)[parameter.name]
    assert weights.shape == parameter.shape
    assert weights.dtype == np.float32
    assert weights.flags["C_CONTIGUOUS"]  # as in a checkpoint: PyTorch computes otherwise in another order
    matrix = weights.reshape(weights.shape[0], -1).astype(np.float64)
    gram = matrix.T @ matrix if matrix.shape[0] >= matrix.shape[1] else matrix @ matrix.T
    assert_allclose(gram / parameter.gain**2, np.eye(min(matrix.shape)), atol=1e-6)


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 2, 2, 2)], ids=str)
def test_parameters_without_gain_start_at_0(shape: tuple[int, ...]) -> None:
    weights = initial_weights((Parameter("bias", shape, None),), seed=1)["bias"]
    assert_array_equal(weights, np.zeros(shape))
    assert weights.dtype == np.float32


def test_orthogonal_by_hand() -> None:
    # Gram and Schmidt keep the direction of the first vector, and the side on which the second lies of it.
    assert_allclose(orthogonal(np.array([[-2.0, 5.0], [0.0, 3.0]]), 2.0), [[-2, 0], [0, 2]], atol=1e-15)
    assert_allclose(orthogonal(np.array([[3.0, 4.0]]), 1.0), [[0.6, 0.8]], rtol=1e-15)
    assert_allclose(orthogonal(np.array([[-3.0], [-4.0]]), 10.0), [[-6], [-8]], rtol=1e-15)


def test_weights_come_from_the_normals_at_their_own_address() -> None:
    # One row of normals only has its length to lose. This is Box and Muller on the words of JAX's own Threefry.
    weights = initial_weights((TALL, Parameter("w", (1, 3), 1.0)), seed=5)["w"][0]
    key = jax.extend.random.threefry_2x32((jnp.uint32(5), jnp.uint32(Stream.WEIGHTS)), jnp.array([1, 0], jnp.uint32))
    words = jax.extend.random.threefry_2x32((key[0], key[1]), jnp.array([0, 0, 0, 0, 1, 2], jnp.uint32))
    first, second = ((np.asarray(words, np.float64) // 2**9 + 0.5) / 2**23).reshape(2, 3)
    normals = np.sqrt(-2 * np.log(first)) * np.cos(2 * np.pi * second)
    assert_allclose(weights, normals / np.linalg.norm(normals), rtol=1e-6)


def test_weights_depend_on_their_place_and_on_no_name_or_neighbour() -> None:
    here = initial_weights((TALL, BIAS, WIDE), seed=1)[WIDE.name]
    there = initial_weights((CONV_WIDE, SQUARE, WIDE._replace(name="a.0.weight")), seed=1)["a.0.weight"]
    assert_array_equal(here, there)


@pytest.mark.parametrize(
    ("network", "shape", "orthogonal_weights", "zero_biases"),
    [
        (ImpalaCnn(), (3, 64, 64), {"actor.0", "critic.0"}, {"actor.0", "critic.0"}),
        (
            Trxl(2, 4, 64, 8, "absolute", 32),
            (84, 84, 3),
            {"trunk.0", "trunk.1", "trunk.2", "trunk.3", "memory.2", "actor.0", "critic.0"},
            {f"memory.{block}.{norm}" for block in (0, 1) for norm in ("norm_query", "norm_rows", "norm_linear")},
        ),
    ],
)
def test_layers_that_cleanrl_leaves_at_pytorchs_defaults_have_those_bounds_and_deviations(
    network: Any, shape: tuple[int, ...], orthogonal_weights: set[str], zero_biases: set[str]
) -> None:
    """Uniform in +- 1 / sqrt(fan-in), weights and biases; `torch.nn.Linear.reset_parameters` says so."""
    parameters = network.build(spaces.Box(0, 255, shape, np.uint8), spaces.Discrete(4)).parameters
    arrays = initial_weights(parameters, seed=1)
    fan_in = {p.name.rsplit(".", 1)[0]: math.prod(p.shape[1:]) for p in parameters if p.name.endswith("weight")}
    for name, array in arrays.items():
        layer, kind = name.rsplit(".", 1)
        if "norm" in layer or layer in (zero_biases if kind == "bias" else orthogonal_weights):
            continue
        bound = 1 / math.sqrt(fan_in[layer])
        assert np.abs(array).max() <= bound, name
        if array.size >= 32:
            assert scipy.stats.kstest(array.ravel() / bound, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-4, name
    for layer in zero_biases:
        assert not arrays[f"{layer}.bias"].any()
    for layer in orthogonal_weights:
        matrix = arrays[f"{layer}.weight"].reshape(len(arrays[f"{layer}.weight"]), -1).astype(np.float64)
        gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
        assert_allclose(gram, gram[0, 0] * np.eye(len(gram)), atol=1e-5)
