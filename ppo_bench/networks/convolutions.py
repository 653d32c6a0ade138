"""Images as networks take them, and what the convolutions of networks of the literature make of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.flattened import FlattenedArray, FlattenedBox
from ppo_bench.mathematics.arrays import Array
from ppo_bench.networks.layers import Parameters, conv, linear

MIN_IMAGE_SIDE = 36
"""Height and width of images, in pixels, below which the convolutions of Mnih et al. 2015 have no output."""


class Window(NamedTuple):
    """The size of a convolution's or a pooling layer's window, its stride and the padding on each side, in pixels."""

    size: int
    stride: int
    padding: int = 0


NATURE = (Window(8, 4), Window(4, 2), Window(3, 1))
"""The convolutions of Mnih et al. 2015."""
IMPALA = (Window(3, 2, 1),) * 3
"""The poolings of Espeholt et al. 2018, whose convolutions keep height and width."""


class ImageEncoder(NamedTuple):
    """An image within flattened observations, and what the convolutions of Mnih et al. 2015 make of it."""

    image: FlattenedArray
    channels: int
    pixels: int
    """Number of pixels after the convolutions."""


def nature_parameters(channels: int, pixels: int, units: int, *, first: int = 0, uniform: bool = False) -> Parameters:
    """Parameters of the convolutions of Mnih et al. 2015, which leave `pixels`, and of a linear layer of `units`.

    Names count from `trunk.<first>`. With `uniform`, biases begin as PyTorch's do by default.
    """
    return (
        *conv(f"trunk.{first}", channels, 32, kernel=8, uniform=uniform),
        *conv(f"trunk.{first + 1}", 32, 64, kernel=4, uniform=uniform),
        *conv(f"trunk.{first + 2}", 64, 64, kernel=3, uniform=uniform),
        *linear(f"trunk.{first + 3}", 64 * pixels, units, uniform=uniform),
    )


def impala_parameters(channels: int, pixels: int) -> Parameters:
    """Parameters of the three blocks of Espeholt et al. 2018 and of a linear layer, which begin as PyTorch's do."""
    convolutions: list[Any] = []
    for block, outputs in enumerate((16, 32, 32)):
        convolutions += conv(f"trunk.{5 * block}", channels, outputs, kernel=3, gain=None, uniform=True)
        for k in range(1, 5):
            convolutions += conv(f"trunk.{5 * block + k}", outputs, outputs, kernel=3, gain=None, uniform=True)
        channels = outputs
    return (*convolutions, *linear("trunk.15", 32 * pixels, 256, gain=None, uniform=True))


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
    height, width, channels = (*image[1:], image[0]) if has_channels_first(image) else image
    return height, width, frames * channels


def channels_last(xp: Any, images: Array, shape: tuple[int, ...]) -> Array:
    """Images `[N, H, W, C]` from `images [N, *shape]`; the channels of several frames are concatenated."""
    if len(shape) == 2:
        return images[..., None]
    if has_channels_first(shape[-3:]):
        images = xp.moveaxis(images, -3, -1)
    if len(shape) == 3:
        return images
    return xp.moveaxis(images, 1, -2).reshape((images.shape[0], *image_shape(shape)))


def are_images(shape: tuple[int, ...], dtype: np.dtype | None) -> bool:
    """Whether `network=auto` takes such arrays for images: bytes or floats, of `MIN_IMAGE_SIDE` or more
    in height and width. Arrays of two axes are images if they are bytes."""
    if len(shape) not in (2, 3, 4) or 0 in shape or dtype is None:
        return False
    image = shape[-3:]
    return sorted(image)[-2] >= MIN_IMAGE_SIDE and (dtype == np.uint8 or (dtype.kind == "f" and len(image) == 3))


def output_sides(windows: Sequence[Window], height: int, width: int) -> tuple[int, int]:
    """Height and width of what `windows` make of images; 0 or less if the images are too small for them."""
    for size, stride, padding in windows:
        height, width = ((side + 2 * padding - size) // stride + 1 for side in (height, width))
    return height, width


def input_sizes(setting: str, shape: tuple[int, ...], windows: Sequence[Window]) -> dict[str, Any]:
    """The `channels` of images of `shape`, and the `pixels` that the convolutions of `windows` make of them.

    Raises `ConfigError` if they are no images, or too small; it names `setting`, such as `network=nature_cnn`.
    """
    *sides, channels = image_shape(shape)
    height, width = output_sides(windows, *sides)
    if min(height, width) < 1:
        raise ConfigError(f"{setting}: images of shape {shape} are too small for it; use network=mlp or lstm")
    return {"channels": channels, "pixels": height * width}


def has_channels_first(shape: tuple[int, ...]) -> bool:
    """Whether images of this shape have their channels first: the last two axes are more alike than the first two.

    So have `(4, 84, 84)` and `(3, 60, 160)`, but not a board of `(4, 4, 31)`.
    """
    first, second, third = map(math.log, shape)
    return abs(first - second) > abs(second - third)


def find_images(space: Any) -> list[FlattenedArray]:
    """The images in flattened observations that convolutions can take; none in other spaces.

    An image has at least `MIN_IMAGE_SIDE` in height and width, and fewer channels than that in a frame.
    """
    arrays = space.arrays if isinstance(space, FlattenedBox) else ()
    images = [array for array in arrays if len(array.shape) in (3, 4) and 0 not in array.shape]
    return [
        image
        for image in images
        if min(image_shape(image.shape)[:2]) >= MIN_IMAGE_SIDE > image_shape(image.shape[-3:])[2]
    ]


def ranges_between_images(images: Sequence[FlattenedArray], size: int) -> list[tuple[int, int]]:
    """Starts and stops of what lies between and around `images` in a vector of `size` numbers."""
    starts, stops = [0, *(image.stop for image in images)], [*(image.start for image in images), size]
    return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
