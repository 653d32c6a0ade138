"""Convolutions of networks of the literature, and the sizes of what they make of images."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Array
from ppo_bench.networks.layers import Activation, Conv, ImageLayer, MaxPool, Residual

LEAST_PIXELS = 36
"""Height and width of images, in pixels, below which the convolutions of Mnih et al. 2015 have no output."""


def nature(channels: int, prefix: str = "trunk.", first: int = 0, activation: Activation = "relu") -> tuple[Conv, ...]:
    """The convolutions of Mnih et al. 2015 on images of `channels`; their names count from `first` after `prefix`."""
    return (
        Conv(f"{prefix}{first}", channels, 32, kernel=8, stride=4, activation=activation),
        Conv(f"{prefix}{first + 1}", 32, 64, kernel=4, stride=2, activation=activation),
        Conv(f"{prefix}{first + 2}", 64, 64, kernel=3, stride=1, activation=activation),
    )


def impala(channels: int) -> tuple[ImageLayer, ...]:
    """The three blocks of Espeholt et al. 2018 on images of `channels`, initialised as PyTorch does by default."""
    sizes = (channels, 16, 32, 32)
    return tuple(layer for block in range(3) for layer in _impala_block(block, *sizes[block : block + 2]))


def _impala_block(block: int, inputs: int, outputs: int) -> tuple[Conv, MaxPool, Residual, Residual]:
    same = Conv(f"trunk.{5 * block}", outputs, outputs, 3, 1, padding=1, gain=None, activation=None, uniform_bias=True)
    first = dataclasses.replace(same, inputs=inputs)

    def residual(index: int) -> Residual:
        one, two = (dataclasses.replace(same, name=f"trunk.{5 * block + i}") for i in (index, index + 1))
        return Residual(dataclasses.replace(one, activation="relu"), two)

    return first, MaxPool(), residual(1), residual(3)


def image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Height, width and channels of images of `shape`, as `channels_last` lays them out.

    `shape` is `[H, W]`, `[H, W, C]`, `[C, H, W]`, or several frames of one of the latter. Raises `ConfigError` if it is
    none of these.
    """
    if not 2 <= len(shape) <= 4:
        raise ConfigError(f"this network takes images, not observations of shape {shape}: use network=mlp, lstm or gru")
    frames, image = (shape[0], shape[1:]) if len(shape) == 4 else (1, shape)
    if len(image) == 2:
        return *image, 1
    height, width, channels = (*image[1:], image[0]) if channels_first(image) else image
    return height, width, frames * channels


def channels_last(xp: Any, images: Array, shape: tuple[int, ...]) -> Array:
    """Images `[N, H, W, C]` from `images [N, *shape]`; the channels of several frames are concatenated."""
    if len(shape) == 2:
        return images[..., None]
    if channels_first(shape[-3:]):
        images = xp.moveaxis(images, -3, -1)
    if len(shape) == 3:
        return images
    return xp.moveaxis(images, 1, -2).reshape((images.shape[0], *image_shape(shape)))


def are_images(shape: tuple[int, ...], dtype: np.dtype | None) -> bool:
    """Whether `network=auto` takes arrays of `shape` and `dtype` for images: bytes or floats, of `LEAST_PIXELS` or more
    in height and width. Arrays of two axes are images if they are bytes."""
    if len(shape) not in (2, 3, 4) or 0 in shape or dtype is None:
        return False
    image = shape[-3:]
    return sorted(image)[-2] >= LEAST_PIXELS and (dtype == np.uint8 or (dtype.kind == "f" and len(image) == 3))


def channels_of(shape: tuple[int, ...]) -> int:
    """The number of channels of images of `shape`. Raises `ConfigError` if they are no images."""
    return image_shape(shape)[2]


def sides_of(shape: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of images of `shape`, in any layout."""
    return image_shape(shape)[:2]


def pixels_after(convolutions: tuple[ImageLayer, ...], height: int, width: int) -> int:
    """The number of pixels that `convolutions` make of images; 0 if the images are too small for them."""
    for layer in convolutions:
        height, width = layer.output_size(height), layer.output_size(width)
    return max(height, 0) * max(width, 0)


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether images of this shape have their channels first: the last two axes are more alike than the first two.

    So have `(4, 84, 84)` and `(3, 60, 160)`, but not a board of `(4, 4, 31)`.
    """
    first, second, third = map(math.log, shape)
    return abs(first - second) > abs(second - third)
