"""Parameters of CleanRL's agents by their names here, and the layouts of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Arrays


class Name(NamedTuple):
    """The name of one parameter on both sides, and the functions between the two layouts."""

    ours: str
    theirs: str
    to_theirs: Callable[[np.ndarray], np.ndarray] = np.asarray
    to_ours: Callable[[np.ndarray], np.ndarray] = np.asarray


def _convolution(ours: str, theirs: str) -> list[Name]:
    """A convolution: `[O, H, W, I]` here and `[O, I, H, W]` there."""
    weight = Name(
        f"{ours}.weight", f"{theirs}.weight", lambda x: np.moveaxis(x, -1, 1), lambda x: np.moveaxis(x, 1, -1)
    )
    return [weight, Name(f"{ours}.bias", f"{theirs}.bias")]


def _after_convolutions(ours: str, theirs: str, channels: int) -> list[Name]:
    """A linear layer on the pixels of convolutions with `channels` outputs, which are last here and first there."""

    def _sides(x: np.ndarray) -> tuple[int, int]:
        side = round((x.shape[1] / channels) ** 0.5)
        return side, side

    def to_theirs(x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x.reshape(-1, *_sides(x), channels), -1, 1).reshape(x.shape)

    def to_ours(x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x.reshape(-1, channels, *_sides(x)), 1, -1).reshape(x.shape)

    return [Name(f"{ours}.weight", f"{theirs}.weight", to_theirs, to_ours), Name(f"{ours}.bias", f"{theirs}.bias")]


def _linear(ours: str, theirs: str) -> list[Name]:
    return [Name(f"{ours}.{end}", f"{theirs}.{end}") for end in ("weight", "bias")]


def _mlp(actor: str) -> list[Name]:
    layers = [(ours, theirs, k) for ours, theirs in (("actor", actor), ("critic", "critic")) for k in range(3)]
    return [name for ours, theirs, k in layers for name in _linear(f"{ours}.{k}", f"{theirs}.{2 * k}")]


HEADS = [*_linear("actor.0", "actor"), *_linear("critic.0", "critic")]


def _nature() -> list[Name]:
    convolutions = [name for k in range(3) for name in _convolution(f"trunk.{k}", f"network.{2 * k}")]
    return [*convolutions, *_after_convolutions("trunk.3", "network.7", 64), *HEADS]


def _impala() -> list[Name]:
    parts = ("conv", "res_block0.conv0", "res_block0.conv1", "res_block1.conv0", "res_block1.conv1")
    layers = [(5 * block + k, f"network.{block}.{part}") for block in range(3) for k, part in enumerate(parts)]
    convolutions = [name for k, theirs in layers for name in _convolution(f"trunk.{k}", theirs)]
    return [*convolutions, *_after_convolutions("trunk.15", "network.5", 32), *HEADS]


def _lstm() -> list[Name]:
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [*_nature(), *(Name(f"memory.{part}", f"lstm.{part}_l0") for part in parts)]


SCRIPTS: dict[str, list[Name]] = {
    "ppo": _mlp("actor"),
    "ppo_continuous_action": [
        *_mlp("actor_mean"),
        Name("actor.log_std", "actor_logstd", lambda x: x[None], lambda x: x[0]),
    ],
    "ppo_atari": _nature(),
    "ppo_atari_envpool": _nature(),
    "ppo_atari_lstm": _lstm(),
    "ppo_procgen": _impala(),
}
"""Names of all parameters, by the script's name."""


def names_of(script: str) -> list[Name]:
    """Names of the parameters of a script. Raises `ConfigError` if they are not known."""
    if script not in SCRIPTS:
        raise ConfigError(f"against={script}.py: its parameters have no names here; there are {', '.join(SCRIPTS)}")
    return SCRIPTS[script]


def to_theirs(names: list[Name], arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The parameters `arrays` by the script's names, in its layout."""
    return {name.theirs: np.ascontiguousarray(name.to_theirs(arrays[f"params.{name.ours}"])) for name in names}


def to_ours(names: list[Name], prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    """Arrays by the script's names as those of a checkpoint, `<prefix>.<name>`."""
    return {f"{prefix}.{name.ours}": np.array(name.to_ours(arrays[name.theirs])) for name in names}
