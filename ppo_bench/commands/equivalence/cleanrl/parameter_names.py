"""Parameters of CleanRL's agents and those here: which are the same, and the layouts of their arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics.arrays import Arrays

Modules = Mapping[str, str | tuple[str, ...]]
"""Parts of the names of modules here, and of those of a script's.

The parameters of a module follow each other in the same order on both sides. An array here may be several there, one
after the other, each in a module of its own. A name belongs to the first part that it contains.
"""

CLASSIC: Modules = {"actor": "actor", "critic": "critic"}
CONTINUOUS: Modules = {"log_std": "actor_logstd", "actor": "actor_mean", "critic": "critic"}
SHARED: Modules = {"trunk": "network", **CLASSIC}
LSTM: Modules = {"memory": "lstm", **SHARED}
RND: Modules = {
    "trunk": "network",
    "actor": "actor",
    "critic.0": "extra_layer",
    "critic.1": ("critic_ext", "critic_int"),
    "predictor": "rnd_model.predictor",
    "target": "rnd_model.target",
}
TRANSFORMER: Modules = {
    "positions": "pos_embedding",
    ".query": "attention.queries",
    ".key": "attention.keys",
    ".value": "attention.values",
    ".out": "attention.fc_out",
    "norm_query": "layer_norm_q",
    "norm_rows": "norm_kv",
    "norm_linear": "layer_norm_attn",
    ".linear": "fc_projection",
    "memory": "hidden_post_trxl",
    "trunk": "encoder",
    "actor": "actor_branches",
    "critic": "critic",
}
FLAX: Modules = {"trunk": "network_params", "actor": "actor_params", "critic": "critic_params"}


class Pair(NamedTuple):
    """A parameter here, or some of its rows, and its name in a script."""

    ours: str
    theirs: str
    rows: slice
    channels: int
    """Outputs of the convolution whose pixels a linear layer takes, which are last here and first there; else 0."""

    def to_theirs(self, x: np.ndarray) -> np.ndarray:
        """The array in the script's layout."""
        x = x[self.rows]
        if self.theirs.endswith("kernel"):  # Flax has the pixels in the order that is used here
            return np.moveaxis(x, 0, -1)
        if self.channels:
            return np.moveaxis(x.reshape(-1, *self._sides(x), self.channels), -1, 1).reshape(x.shape)
        if self.theirs == "actor_logstd":
            return x[None]
        return np.moveaxis(x, -1, 1) if x.ndim == 4 else x

    def to_ours(self, x: np.ndarray) -> np.ndarray:
        """The script's array in the layout here."""
        if self.theirs.endswith("kernel"):
            return np.moveaxis(x, -1, 0)
        if self.channels:
            return np.moveaxis(x.reshape(-1, self.channels, *self._sides(x)), 1, -1).reshape(x.shape)
        if self.theirs == "actor_logstd":
            return x[0]
        return np.moveaxis(x, 1, -1) if x.ndim == 4 else x

    def _sides(self, x: np.ndarray) -> tuple[int, int]:
        side = round((x.shape[1] / self.channels) ** 0.5)
        return side, side


def pairs(modules: Modules, initial: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> list[Pair]:
    """All parameters among the `initial` arrays, with those of a script, which have these `shapes`.

    Raises `ConfigError` if one is on one side alone, or has another shape there.
    """
    found = []
    ours = [name for name in initial if name.startswith(("params.", "frozen."))]
    theirs = list(shapes)
    for part, there in modules.items():
        own = [name for name in ours if part in name]
        ours = [name for name in ours if part not in name]
        channels = [0, *(initial[name].shape[0] if initial[name].ndim == 4 else 0 for name in own[::2])]
        parts = [there] if isinstance(there, str) else there
        for row, each in enumerate(parts):
            rows = slice(row, row + 1) if len(parts) > 1 else slice(None)
            others = [name for name in theirs if each in name]
            theirs = [name for name in theirs if each not in name]
            for place, (mine, yours) in enumerate(zip(own, others, strict=False)):
                of_pixels = channels[place // 2] if initial[mine].ndim == 2 else 0
                found.append(pair := Pair(mine, yours, rows, of_pixels))
                if pair.to_theirs(initial[mine]).shape != tuple(shapes[yours]):
                    raise ConfigError(
                        f"{yours} has the shape {list(shapes[yours])}, and {mine} here {list(initial[mine].shape)}: "
                        "use the network of the script's preset"
                    )
            theirs += others[len(own) :]
            ours += own[len(others) :]
    if lone := [*ours, *theirs]:
        raise ConfigError(f"{lone[0]} is on one side alone: use the network of the script's preset")
    return found


def to_ours(found: list[Pair], prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    """Those of `arrays`, given by the script's names, that are in a pair, as a checkpoint's: `<prefix>.<name>`."""
    parts: dict[str, list[np.ndarray]] = {}
    for pair in found:
        if pair.theirs in arrays:
            name = f"{prefix}.{pair.ours.partition('.')[2]}"
            parts.setdefault(name, []).append(pair.to_ours(np.asarray(arrays[pair.theirs])))
    return {name: np.concatenate(of_rows) for name, of_rows in parts.items()}
