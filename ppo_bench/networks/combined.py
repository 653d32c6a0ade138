"""Networks for flattened observations with images in them: convolutions for each image, beside everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ppo_bench.common.flattened import Flattened, Placed
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import LEAST_PIXELS, channels_last, channels_of, sides_of
from ppo_bench.networks.layers import Conv, Linear
from ppo_bench.networks.network import NetworkSpec, features
from ppo_bench.networks.ops import Ops


class Eye(NamedTuple):
    """An image within flattened observations, and the layers that make features of it."""

    image: Placed
    convolutions: tuple[Conv, ...]
    linear: Linear

    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters, in the order of the layers."""
        convolved = tuple(parameter for layer in self.convolutions for parameter in layer.parameters())
        return (*convolved, *self.linear.parameters())


@dataclass(frozen=True)
class CombinedSpec(NetworkSpec):
    """A `NetworkSpec` whose actor and critic take the features of each image, and then all other numbers as they are.

    It has no shared layers but those of its eyes.
    """

    eyes: tuple[Eye, ...]

    convolves = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters; the eyes' come first."""
        return (*(parameter for eye in self.eyes for parameter in eye.parameters()), *super().parameters)

    @property
    def scaled_weights(self) -> tuple[str, ...]:
        """No names: bytes are divided themselves, since only some of actor and critic's inputs are bytes."""
        return ()

    def _features(self, ops: Ops, params: Tree, obs: Array) -> Array:
        obs = ops.flat(obs) / 255.0 if self.uint8 else ops.flat(obs)
        seen = [
            features(ops, eye.convolutions, (eye.linear,), params, _image(ops, obs, eye.image)) for eye in self.eyes
        ]
        others = besides([eye.image for eye in self.eyes], obs.shape[-1])
        return ops.xp.concatenate((*seen, *(obs[:, start:stop] for start, stop in others)), -1)


def images_in(space: Any) -> list[Placed]:
    """The images in flattened observations that convolutions can take; none in other spaces.

    An image has at least `LEAST_PIXELS` in height and width, and fewer channels than that in a frame.
    """
    arrays = space.arrays if isinstance(space, Flattened) else ()
    images = [array for array in arrays if len(array.shape) in (3, 4) and 0 not in array.shape]
    return [image for image in images if min(sides_of(image.shape)) >= LEAST_PIXELS > channels_of(image.shape[-3:])]


def besides(images: Sequence[Placed], size: int) -> list[tuple[int, int]]:
    """Starts and stops of what lies between and around `images` in a vector of `size` numbers."""
    starts, stops = [0, *(image.stop for image in images)], [*(image.start for image in images), size]
    return [(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]


def _image(ops: Ops, obs: Array, image: Placed) -> Array:
    """Images `[B, H, W, C]` of observations `[B, D]`."""
    images = obs[:, image.start : image.stop].reshape((-1, *image.shape))
    return channels_last(ops.xp, images, image.shape)
