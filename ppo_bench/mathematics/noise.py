"""Counter-based random numbers: every draw is a function of the place where it is used.

The generator is Threefry-2x32 with 20 rounds (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"), the
one behind `jax.random`. It runs over int32 arrays, so that NumPy, PyTorch and JAX produce the same bits. It has no
state:

    key  = threefry((seed, stream), (iteration, step))
    word = threefry(key, (index, lane))

A word is a random int32. `index` is an environment, a transition or an array element. `lane` counts the words that one
index needs, for example one for each component of an action. Draws do not depend on how many environments, devices or
processes share the work. A resumed run needs no generator state, and replaying a CUDA graph does not repeat the noise.

`xp` is `numpy`, `torch` or `jax.numpy`. Index arguments are int32 arrays of at least one dimension, on the device that
computes the noise; they broadcast against each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np

from ppo_bench.mathematics.arrays import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA


class Stream(IntEnum):
    """The purpose of a draw. Each purpose has keys of its own, so that no two purposes share their random words."""

    WEIGHTS = 0
    ACTIONS = 1
    PERMUTATIONS = 2
    ENV_SEEDS = 3
    ENV_RESETS = 4
    EVALUATION_ACTIONS = 5
    EVALUATION_ENV_SEEDS = 6
    TRANSITIONS = 7


def _rotate_left(x: Array, bits: int) -> Array:
    # An int32 right shift copies the sign bit, so the bits that wrap round are masked.
    return (x << bits) | ((x >> (32 - bits)) & ((1 << bits) - 1))


def threefry2x32(key: tuple[Array, Array], counter: tuple[Array, Array]) -> tuple[Array, Array]:
    """Two int32 arrays of random words, of the broadcast shape: `counter` encrypted under `key`.

    They are bit-identical in NumPy, PyTorch and JAX.
    """
    key0, key1 = key
    schedule = (key0, key1, key0 ^ key1 ^ _PARITY)
    x0, x1 = counter[0] + key0, counter[1] + key1
    for block in range(5):
        for bits in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = _rotate_left(x1, bits) ^ x0
        x0 = x0 + schedule[(block + 1) % 3]
        x1 = x1 + schedule[(block + 2) % 3] + (block + 1)
    return x0, x1


def stream_key(xp: Any, seed: Array, stream: Stream, iteration: Array, step: Array) -> tuple[Array, Array]:
    """The key of `stream` for one seed, iteration and step; these three are int32 arrays that broadcast."""
    return threefry2x32((seed, xp.zeros_like(seed) + int(stream)), (iteration, step))


def uniform(xp: Any, words: Array, dtype: Any) -> Array:
    """Floats in the open interval (0, 1) from int32 words.

    They are `(k + 0.5) / 2^23` for a 23-bit k. With 24 bits the largest value would round to 1 in float32, and its
    Gumbel variate would be infinite.
    """
    return (xp.asarray((words >> 9) & 0x7FFFFF, dtype=dtype) + 0.5) * 2.0**-23


def gumbel(xp: Any, words: tuple[Array, Array], dtype: Any) -> Array:
    """Standard Gumbel variates from the first of two arrays of words.

    `argmax(logits + gumbel)` samples from softmax(logits).
    """
    return -xp.log(-xp.log(uniform(xp, words[0], dtype)))


def normal(xp: Any, words: tuple[Array, Array], dtype: Any) -> Array:
    """Standard normal variates by Box and Muller (1958), one from each pair of words."""
    radius = xp.sqrt(-2.0 * xp.log(uniform(xp, words[0], dtype)))
    return radius * xp.cos((2.0 * math.pi) * uniform(xp, words[1], dtype))


def action_words(
    xp: Any,
    seed: Array,
    iteration: Array,
    steps: Array,
    envs: Array,
    lanes: Array,
    stream: Stream = Stream.ACTIONS,
) -> tuple[Array, Array]:
    """Two arrays of words `[T, N, A]` for the action noise of one iteration.

    `steps [T]`, `envs [N]` and `lanes [A]` are the indices of steps, environments and actor outputs.
    """
    key0, key1 = _prevent_fusion(xp, stream_key(xp, seed, stream, iteration, steps))
    key = (key0[:, None, None], key1[:, None, None])
    return threefry2x32(key, (envs[None, :, None], lanes[None, None, :]))


def _prevent_fusion(xp: Any, words: tuple[Array, Array]) -> tuple[Array, Array]:
    """`words`, which XLA computes before what needs them.

    XLA of jax 0.11 compiles the rounds of key and words without end once it has merged them (for up to three rows).
    """
    if xp.__name__ != "jax.numpy":
        return words
    from jax.lax import optimization_barrier

    return optimization_barrier(words)


def stable_argsort(xp: Any, words: Array) -> Array:
    """Indices `[..., B]` that sort `words [..., B]` in ascending order along the last axis; equal words keep their
    order."""
    return xp.argsort(words, stable=True)


def permutations(
    xp: Any,
    seed: Array,
    iteration: Array,
    epochs: Array,
    indices: Array,
    *,
    argsort: Callable[[Any, Array], Array] = stable_argsort,
) -> Array:
    """Permutations `[E, ..., B]` of the numbers from 0 to B - 1 for each of `epochs [E]`: the order of random words.

    `indices [..., B]` are the keys of the words. `argsort` is `stable_argsort` or an equivalent of it.
    """
    key = stream_key(xp, seed, Stream.PERMUTATIONS, iteration, epochs)
    key0, key1 = (part.reshape((-1,) + (1,) * indices.ndim) for part in key)
    words, _ = threefry2x32((key0, key1), (indices[None], xp.zeros_like(indices)[None]))
    return argsort(xp, words)


def env_seeds(seed: int, iteration: int, num_envs: int, stream: Stream = Stream.ENV_SEEDS) -> list[int]:
    """A 31-bit seed for each environment, from `seed`, the `iteration` of the last restart and the index of the
    environment."""
    one = np.ones(1, np.int32)
    key = stream_key(np, one * seed, stream, one * iteration, one * 0)
    words, _ = threefry2x32(key, (np.arange(num_envs, dtype=np.int32), np.zeros(num_envs, np.int32)))
    return [int(word) for word in words & 0x7FFFFFFF]


def reset_words(xp: Any, seeds: Array, episodes: Array, num_words: int) -> Array:
    """Words `[N, num_words]` for the initial states of episodes.

    `seeds [N]` are the environments' seeds, `episodes [N]` the number of each one's episode, both int32.
    """
    key0, key1 = stream_key(xp, seeds, Stream.ENV_RESETS, episodes, xp.zeros_like(seeds))
    lanes = xp.stack([xp.full_like(seeds, lane) for lane in range(num_words)], -1)  # on the device of the seeds
    words, _ = threefry2x32((key0[:, None], key1[:, None]), (xp.zeros_like(lanes), lanes))
    return words
