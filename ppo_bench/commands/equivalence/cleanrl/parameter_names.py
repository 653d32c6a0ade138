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


def _nature_cnn(ours: str, theirs: str) -> list[Name]:
    """The convolutions of Mnih et al. 2015, and the linear layer behind them."""
    convolutions = _layers(_convolution, {f"{ours}.{k}": f"{theirs}.{2 * k}" for k in range(3)})
    return [*convolutions, *_after_convolutions(f"{ours}.3", f"{theirs}.7", 64)]


def _layers(layer: Callable[[str, str], list[Name]], names: Mapping[str, str]) -> list[Name]:
    """The parameters of layers of one kind, by their names here and there."""
    return [name for ours, theirs in names.items() for name in layer(ours, theirs)]


# --- Networks, for the arrays that a training begins with -------------------------------------------------------------

HEADS = _layers(_linear, {"actor.0": "actor", "critic.0": "critic"})


def _mlp(actor: str) -> list[Name]:
    return _layers(
        _linear, {f"{o}.{k}": f"{t}.{2 * k}" for o, t in (("actor", actor), ("critic", "critic")) for k in range(3)}
    )


def classic(initial: Arrays) -> list[Name]:
    """Two networks of three linear layers."""
    return _mlp("actor")


def continuous(initial: Arrays) -> list[Name]:
    """The same, with a mean and a deviation that no observation changes."""
    return [*_mlp("actor_mean"), Name("actor.log_std", "actor_logstd", lambda x: x[None], lambda x: x[0])]


def nature(initial: Arrays) -> list[Name]:
    """Convolutions with two heads."""
    return [*_nature_cnn("trunk", "network"), *HEADS]


def impala(initial: Arrays) -> list[Name]:
    """Residual convolutions with two heads."""
    parts = ("conv", "res_block0.conv0", "res_block0.conv1", "res_block1.conv0", "res_block1.conv1")
    names = {f"trunk.{5 * block + k}": f"network.{block}.{part}" for block in range(3) for k, part in enumerate(parts)}
    return [*_layers(_convolution, names), *_after_convolutions("trunk.15", "network.5", 32), *HEADS]


def lstm(initial: Arrays) -> list[Name]:
    """Convolutions and an LSTM with two heads."""
    parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    return [*nature(initial), *(Name(f"memory.{part}", f"lstm.{part}_l0") for part in parts)]


def rnd(initial: Arrays) -> list[Name]:
    """Actor, critic of two streams, predictor and target."""
    images = {"trunk": "network", "predictor": "rnd_model.predictor", "target": "rnd_model.target"}
    linear = {"trunk.4": "network.9", "critic.0": "extra_layer.0", "actor.0": "actor.0", "actor.1": "actor.2"}
    linear |= {f"predictor.{k}": f"rnd_model.predictor.{2 * k + 1}" for k in (4, 5)}
    streams = [
        Name(f"critic.1.{end}", f"critic_{stream}.{end}", itemgetter(row))
        for stream, row in (("ext", slice(0, 1)), ("int", slice(1, 2)))
        for end in ("weight", "bias")
    ]
    return [*_layers(_nature_cnn, images), *_layers(_linear, linear), *streams]


def transformer(initial: Arrays) -> list[Name]:
    """A transformer behind linear layers or convolutions."""
    layers = len([name for name in initial if name.startswith("params.memory.") and name.endswith(".query.weight")])
    images = "params.trunk.3.weight" in initial
    names = _nature_cnn("trunk", "encoder") if images else _linear("trunk.0", "encoder")
    if "params.memory.positions.weight" in initial:
        names.append(Name("memory.positions.weight", "transformer.pos_embedding"))
    linear = {f"memory.{layers}": "hidden_post_trxl.0", "actor.0": "actor_branches.0", "critic.0": "critic"}
    parts = {"out": "attention.fc_out", "norm_query": "layer_norm_q", "norm_rows": "norm_kv"}
    parts |= {"norm_linear": "layer_norm_attn", "linear": "fc_projection.0"}
    for k in range(layers):
        ours, theirs = f"memory.{k}", f"transformer.transformer_layers.{k}"
        projections = {"query": "queries", "key": "keys", "value": "values"}
        names += [Name(f"{ours}.{a}.weight", f"{theirs}.attention.{b}.weight") for a, b in projections.items()]
        linear |= {f"{ours}.{a}": f"{theirs}.{b}" for a, b in parts.items()}
    return [*names, *_layers(_linear, linear)]


def flax(initial: Arrays) -> list[Name]:
    """Layers of Flax: kernels `[H, W, I, O]` and `[I, O]`, with pixels in the order that is used here."""

    def layer(ours: str, theirs: str) -> list[Name]:
        kernel = Name(
            f"{ours}.weight", f"{theirs}.kernel", lambda x: np.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, -1, 0)
        )
        return [kernel, Name(f"{ours}.bias", f"{theirs}.bias")]

    layers = {f"trunk.{k}": f"network_params.Conv_{k}" for k in range(3)} | {"trunk.3": "network_params.Dense_0"}
    layers |= {"actor.0": "actor_params.Dense_0", "critic.0": "critic_params.Dense_0"}
    return _layers(layer, layers)


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
