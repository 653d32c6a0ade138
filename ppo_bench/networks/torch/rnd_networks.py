"""Predictor and target of random network distillation (Burda et al. 2018) in PyTorch."""

from __future__ import annotations

from torch import nn

from ppo_bench.networks.torch.layers import ChannelsFirst, Conv2d, Flatten, Linear


def _extra_predictor_layers(units: int) -> list[nn.Module]:
    """The two layers that the predictor has more than the target."""
    return [Linear(units, units, "relu"), Linear(units, units)]


class ImageFeatures(nn.Sequential):
    """Features `[B, units]` of images `[B, H, W, C]`, which have `pixels` after the convolutions."""

    def __init__(self, channels: int, pixels: int, units: int, is_predictor: bool) -> None:
        super().__init__(
            ChannelsFirst(),
            Conv2d(channels, 32, kernel=8, stride=4, activation="leaky_relu"),
            Conv2d(32, 64, kernel=4, stride=2, activation="leaky_relu"),
            Conv2d(64, 64, kernel=3, stride=1, activation="leaky_relu"),
            Flatten(),
            Linear(64 * pixels, units, "relu" if is_predictor else None),
            *(_extra_predictor_layers(units) if is_predictor else ()),
        )


class VectorFeatures(nn.Sequential):
    """Features `[B, units]` of vectors `[B, inputs]`."""

    def __init__(self, inputs: int, units: int, is_predictor: bool) -> None:
        super().__init__(
            Linear(inputs, units, "leaky_relu"),
            Linear(units, units, "relu" if is_predictor else None),
            *(_extra_predictor_layers(units) if is_predictor else ()),
        )
