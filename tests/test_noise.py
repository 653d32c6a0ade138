"""The noise against published vectors, another implementation of the same cipher, and the laws it must follow."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.mathematics import noise
from ppo_bench.runners.jax_functions import stable_argsort
from tests.namespaces import NAMESPACES, Namespace, to_numpy


def words(*values: int) -> np.ndarray:
    """Unsigned 32-bit words as the int32 array with the same bits."""
    return np.array(values, np.uint32).view(np.int32)


def reference(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """JAX's own Threefry of one pair of words, all unsigned."""
    pair = jax.extend.random.threefry_2x32((jnp.uint32(key[0]), jnp.uint32(key[1])), jnp.array(counter, jnp.uint32))
    return int(pair[0]), int(pair[1])


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def indices(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.int32)


def action_words(
    ns: Namespace, seed: int = 1, iteration: int = 1, steps: int = 8, envs: int = 8, lanes: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    drawn: tuple[np.ndarray, np.ndarray] = ns.run(
        noise.action_words, ints(seed), ints(iteration), indices(steps), indices(envs), indices(lanes)
    )
    return drawn


# --- The cipher -------------------------------------------------------------------------------------------------------

# threefry2x32 with 20 rounds, from `kat_vectors` of the Random123 distribution: counter, key, result
KNOWN_ANSWERS = [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_threefry_known_answers(
    ns: Namespace, counter: tuple[int, int], key: tuple[int, int], expected: tuple[int, int]
) -> None:
    def threefry(_: Any, *inputs: Any) -> Any:
        return noise.threefry2x32(inputs[:2], inputs[2:])

    result = ns.run(threefry, *(words(word) for word in (*key, *counter)))
    assert_array_equal(np.concatenate(result).view(np.uint32), expected)


def test_words_are_the_same_without_64_bit_jax_and_when_compiled() -> None:
    arguments = ints(7), ints(3), indices(5), indices(6), indices(2)
    expected = NAMESPACES["numpy"].run(noise.action_words, *arguments)
    by_xla = jax.jit(lambda *arrays: noise.action_words(jnp, *arrays))
    by_dynamo = torch.compile(lambda *arrays: noise.action_words(torch, *arrays), fullgraph=True, backend="eager")
    with jax.enable_x64(False):
        assert_array_equal(by_xla(*arguments), expected)
    assert_array_equal(to_numpy(by_dynamo(*(torch.tensor(x) for x in arguments))), expected)


# --- Where each word comes from ---------------------------------------------------------------------------------------


def test_action_words_follow_the_documented_addresses(ns: Namespace) -> None:
    drawn = action_words(ns, seed=5, iteration=3, steps=3, envs=4, lanes=2)
    for step, env, lane in np.ndindex(3, 4, 2):
        key = reference((5, noise.Stream.ACTIONS), (3, step))
        expected = reference(key, (env, lane))
        assert tuple(int(half[step, env, lane]) & 0xFFFFFFFF for half in drawn) == expected


def test_env_seeds_follow_the_documented_addresses() -> None:
    key = reference((5, noise.Stream.ENV_SEEDS), (3, 0))
    assert noise.env_seeds(5, 3, 4) == [reference(key, (env, 0))[0] & 0x7FFFFFFF for env in range(4)]


def test_permutations_follow_the_documented_addresses(ns: Namespace) -> None:
    drawn = ns.run(noise.permutations, ints(5), ints(3), indices(2), indices(6))
    for epoch in range(2):
        key = reference((5, noise.Stream.PERMUTATIONS), (3, epoch))
        keys = words(*(reference(key, (index, 0))[0] for index in range(6)))
        assert_array_equal(keys[drawn[epoch]], np.sort(keys))


def test_streams_do_not_collide(ns: Namespace) -> None:
    seed, iteration, step = (x.astype(np.int32).ravel() for x in np.indices((20, 10, 10)))
    keys = np.concatenate(
        [np.stack(ns.run(noise.stream_key, seed, stream, iteration, step), 1) for stream in noise.Stream]
    )
    assert len(np.unique(keys, axis=0)) == len(keys) == len(noise.Stream) * 2000


# --- Uniform, Gumbel and normal variates ------------------------------------------------------------------------------

# 23 bits and a half: the smallest and the largest uniform, and the two beside the middle.
EXTREME_WORDS = ints(0, -1, 2**31 - 1, -(2**31))
EXTREME_UNIFORMS = [2.0**-24, 1 - 2.0**-24, 0.5 - 2.0**-24, 0.5 + 2.0**-24]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_uniform_at_the_extremes_is_exact_and_open(ns: Namespace, dtype: str) -> None:
    drawn = ns.run(noise.uniform, EXTREME_WORDS, ns.dtype(dtype))
    assert drawn.dtype == dtype
    assert_array_equal(drawn, EXTREME_UNIFORMS)
    assert np.all((drawn > 0) & (drawn < 1))


def test_gumbel_at_the_extremes_is_finite_in_float32(ns: Namespace) -> None:
    drawn = ns.run(noise.gumbel, (EXTREME_WORDS, EXTREME_WORDS), ns.dtype("float32"))
    assert drawn.dtype == np.float32
    # -ln(24 ln 2), and -ln(-ln(1 - 2^-24)) = 24 ln 2 to first order; both middle ones are -ln(ln 2) nearly
    middle = -math.log(math.log(2))
    assert_allclose(drawn, [-math.log(24 * math.log(2)), 24 * math.log(2), middle, middle], rtol=1e-6)


def test_normal_at_the_extremes_is_finite_in_float32(ns: Namespace) -> None:
    smallest, largest = ints(0, 0, -1), ints(0, -(2**31), 0)
    drawn = ns.run(noise.normal, (smallest, largest), ns.dtype("float32"))
    assert drawn.dtype == np.float32
    # radius sqrt(48 ln 2) at angles 0 and pi; radius sqrt(2^-23) at angle 0
    radius = math.sqrt(48 * math.log(2))
    assert_allclose(drawn, [radius, -radius, math.sqrt(2.0**-23)], rtol=1e-5)


def draws(ns: Namespace, kind: str) -> np.ndarray:
    """100,000 variates of one kind, in float64."""
    both = action_words(ns, steps=10, envs=1000, lanes=10)
    if kind == "uniform":
        return np.ravel(ns.run(noise.uniform, both[0], ns.dtype("float64")))
    return np.ravel(ns.run(getattr(noise, kind), both, ns.dtype("float64")))


@pytest.mark.parametrize(("kind", "law"), [("uniform", "uniform"), ("gumbel", "gumbel_r"), ("normal", "norm")])
def test_variates_follow_their_law(ns: Namespace, kind: str, law: str) -> None:
    assert scipy.stats.kstest(draws(ns, kind), law).pvalue > 0.01


# --- Permutations -----------------------------------------------------------------------------------------------------


def test_sorting_words_with_their_places_is_a_stable_argsort() -> None:
    drawn = ints(7, -1, 7, -(2**31), 2**31 - 1, 0, -1, 7, -(2**31), 2**31 - 1)
    many = np.random.default_rng(1).integers(-(2**31), 2**31, (4, 5_000), np.int32) // 2**20  # 4,096 values: most recur
    for each in (drawn[None], many):
        ordered = jax.jit(stable_argsort, static_argnums=0)(jnp, each)
        assert ordered.dtype == jnp.int32
        assert_array_equal(ordered, np.argsort(each, axis=-1, stable=True))


def test_permutations_of_the_program_are_the_documented_ones() -> None:
    arguments = ints(3), ints(9), indices(4), indices(64)
    in_program = noise.permutations(jnp, *map(jnp.asarray, arguments), argsort=stable_argsort)
    assert_array_equal(in_program, noise.permutations(np, *arguments))
