"""Parameters of CleanRL's agents by their names here, and the layouts of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.mathematics.arrays import Arrays


class Name(NamedTuple):
    """The name of one parameter on both sides, and the functions between the two layouts.

    An array here that is several there, one behind the other, has a name for each of them.
    """

    ours: str
    theirs: str
    to_theirs: Callable[[np.ndarray], np.ndarray] = np.asarray
    to_ours: Callable[[np.ndarray], np.ndarray] = np.asarray


# --- Layers -----------------------------------------------------------------------------------------------------------


def _convolution(ours: str, theirs: str) -> list[Name]:
    """A convolution: `[O, H, W, I]` here and `[O, I, H, W]` there."""
    weight = Name(
        f"{ours}.weight", f"{theirs}.weight", lambda x: np.moveaxis(x, -1, 1), lambda x: np.moveaxis(x, 1, -1)
    )
    return [weight, Name(f"{ours}.bias", f"{theirs}.bias")]


def _after_convolutions(ours: str, theirs: str, channels: int) -> list[Name]:
    """A linear layer on the pixels of convolutions with `channels` outputs, which are last here and first there."""

    def side(x: np.ndarray) -> int:
        return round((x.shape[1] / channels) ** 0.5)

    def to_theirs(x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x.reshape(-1, side(x), side(x), channels), -1, 1).reshape(x.shape)

    def to_ours(x: np.ndarray) -> np.ndarray:
        return np.moveaxis(x.reshape(-1, channels, side(x), side(x)), 1, -1).reshape(x.shape)

    return [Name(f"{ours}.weight", f"{theirs}.weight", to_theirs, to_ours), Name(f"{ours}.bias", f"{theirs}.bias")]


def _linear(ours: str, theirs: str) -> list[Name]:
    return [Name(f"{ours}.{end}", f"{theirs}.{end}") for end in ("weight", "bias")]


def _convolutions(ours: str, theirs: str) -> list[Name]:
    """Those of Mnih et al. 2015, and the linear layer behind them."""
    convolutions = [name for k in range(3) for name in _convolution(f"{ours}.{k}", f"{theirs}.{2 * k}")]
    return [*convolutions, *_after_convolutions(f"{ours}.3", f"{theirs}.7", 64)]


# --- Networks, for the arrays that a training begins with -------------------------------------------------------------

HEADS = [*_linear("actor.0", "actor"), *_linear("critic.0", "critic")]


def _mlp(actor: str) -> list[Name]:
    layers = [(ours, theirs, k) for ours, theirs in (("actor", actor), ("critic", "critic")) for k in range(3)]
    return [name for ours, theirs, k in layers for name in _linear(f"{ours}.{k}", f"{theirs}.{2 * k}")]


def classic(initial: Arrays) -> list[Name]:
    """Two networks of three linear layers."""
    return _mlp("actor")


def continuous(initial: Arrays) -> list[Name]:
    """The same, with a mean and a deviation that no observation changes."""
    return [*_mlp("actor_mean"), Name("actor.log_std", "actor_logstd", lambda x: x[None], lambda x: x[0])]


def nature(initial: Arrays) -> list[Name]:
    """Convolutions with two heads."""
    return [*_convolutions("trunk", "network"), *HEADS]


def impala(initial: Arrays) -> list[Name]:
    """Residual convolutions with two heads."""
    parts = ("conv", "res_block0.conv0", "res_block0.conv1", "res_block1.conv0", "res_block1.conv1")
    layers = [(5 * block + k, f"network.{block}.{part}") for block in range(3) for k, part in enumerate(parts)]
    convolutions = [name for k, theirs in layers for name in _convolution(f"trunk.{k}", theirs)]
    return [*convolutions, *_after_convolutions("trunk.15", "network.5", 32), *HEADS]


def lstm(initial: Arrays) -> list[Name]:
    """Convolutions and an LSTM with two heads."""
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [*nature(initial), *(Name(f"memory.{part}", f"lstm.{part}_l0") for part in parts)]


def rnd(initial: Arrays) -> list[Name]:
    """Actor, critic of two streams, predictor and target."""
    linear = {"trunk.4": "network.9", "critic.0": "extra_layer.0", "actor.0": "actor.0", "actor.1": "actor.2"}
    linear |= {f"predictor.{k}": f"rnd_model.predictor.{2 * k + 1}" for k in (4, 5)}
    rows = {"ext": slice(0, 1), "int": slice(1, 2)}
    streams = [
        Name(f"critic.1.{end}", f"critic_{stream}.{end}", itemgetter(rows[stream]))
        for stream in rows
        for end in ("weight", "bias")
    ]
    images = {"trunk": "network", "predictor": "rnd_model.predictor", "target": "rnd_model.target"}
    convolutions = [name for ours, theirs in images.items() for name in _convolutions(ours, theirs)]
    return [*convolutions, *(name for pair in linear.items() for name in _linear(*pair)), *streams]


def transformer(initial: Arrays) -> list[Name]:
    """A transformer behind linear layers or convolutions."""
    layers = len([name for name in initial if name.startswith("params.memory.") and name.endswith(".query.weight")])
    images = "params.trunk.3.weight" in initial
    names = _convolutions("trunk", "encoder") if images else _linear("trunk.0", "encoder")
    if "params.memory.positions.weight" in initial:
        names.append(Name("memory.positions.weight", "transformer.pos_embedding"))
    for k in range(layers):
        ours, theirs = f"memory.{k}", f"transformer.transformer_layers.{k}"
        projections = {"query": "queries", "key": "keys", "value": "values"}
        names += [Name(f"{ours}.{a}.weight", f"{theirs}.attention.{b}.weight") for a, b in projections.items()]
        parts = {"out": "attention.fc_out", "norm_query": "layer_norm_q", "norm_rows": "norm_kv"}
        parts |= {"norm_linear": "layer_norm_attn", "linear": "fc_projection.0"}
        names += [name for a, b in parts.items() for name in _linear(f"{ours}.{a}", f"{theirs}.{b}")]
    heads = {f"memory.{layers}": "hidden_post_trxl.0", "actor.0": "actor_branches.0", "critic.0": "critic"}
    return [*names, *(name for pair in heads.items() for name in _linear(*pair))]


def flax(initial: Arrays) -> list[Name]:
    """Layers of Flax: kernels `[H, W, I, O]` and `[I, O]`, with pixels in the order that is used here."""

    def layer(ours: str, theirs: str) -> list[Name]:
        kernel = Name(
            f"{ours}.weight", f"{theirs}.kernel", lambda x: np.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, -1, 0)
        )
        return [kernel, Name(f"{ours}.bias", f"{theirs}.bias")]

    layers = {f"trunk.{k}": f"network_params.Conv_{k}" for k in range(3)} | {"trunk.3": "network_params.Dense_0"}
    layers |= {"actor.0": "actor_params.Dense_0", "critic.0": "critic_params.Dense_0"}
    return [name for pair in layers.items() for name in layer(*pair)]


def to_theirs(names: list[Name], arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The parameters `arrays`, frozen ones too, by the script's names, in its layout."""
    return {
        name.theirs: np.ascontiguousarray(
            name.to_theirs(arrays[f"{'params' if f'params.{name.ours}' in arrays else 'frozen'}.{name.ours}"])
        )
        for name in names
    }


def to_ours(names: list[Name], prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    """Those of `arrays` that have a name, given by the script's names, as a checkpoint's: `<prefix>.<name>`."""
    parts: dict[str, list[np.ndarray]] = {}
    for name in names:
        if name.theirs in arrays:
            parts.setdefault(f"{prefix}.{name.ours}", []).append(np.asarray(name.to_ours(arrays[name.theirs])))
    return {name: np.concatenate(found) if len(found) > 1 else np.array(found[0]) for name, found in parts.items()}
