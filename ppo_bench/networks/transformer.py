"""Transformer-XL policies: each layer attends to its own inputs at the latest steps of the episode (Dai et al. 2019).

Layers, their order and their defaults are those of CleanRL's ppo_trxl.py (Pleines et al. 2023, "Memory Gym"): attention
heads share their projections, inputs are normalised before each layer, and scores are divided by the square root of all
dimensions. All biases, and the weights of the transformer's layers, start as PyTorch's do by default. Remembered inputs
carry no gradient. At the first step of an episode there is no row to attend to, and the attention's mean is 0.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ppo_bench.common.errors import ConfigError
from ppo_bench.mathematics import attention
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.distributions import Head
from ppo_bench.mathematics.normalize import are_bytes
from ppo_bench.mathematics.recurrent import sigmoid
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import LEAST_PIXELS, sides_of
from ppo_bench.networks.decoder import Decoder, cross_entropy, decoder_of
from ppo_bench.networks.layers import HIDDEN_GAIN, Conv, Linear, normalisation, weight_and_bias
from ppo_bench.networks.network import Carry, NetworkSpec, Outputs
from ppo_bench.networks.ops import Ops, normalised
from ppo_bench.networks.spec import CRITIC_GAIN, Mlp, nature_network

if TYPE_CHECKING:
    import gymnasium

Positions = Literal["none", "absolute", "learned"]

ACTOR_GAIN = 0.1
GATE_BIAS = 2.0
"""Initial bias of a gate: a larger one passes less of the new values (Parisotto et al. 2020, section 3.2)."""


@dataclass(frozen=True)
class Block:
    """One layer of the transformer: attention, then a linear layer, each with a residual connection or a gate."""

    name: str
    dim: int
    heads: int
    gated: bool

    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters, in the order of use."""
        head, square = self.dim // self.heads, (self.dim, self.dim)
        uniform = functools.partial(weight_and_bias, gain=None, uniform_bias=True)  # as PyTorch does by default
        arrays = [
            *normalisation(f"{self.name}.norm_query", self.dim),
            *normalisation(f"{self.name}.norm_rows", self.dim),
            *(uniform(f"{self.name}.{part}", (head, head))[0] for part in ("query", "key", "value")),
            *uniform(f"{self.name}.out", square),
            *normalisation(f"{self.name}.norm_linear", self.dim),
            *uniform(f"{self.name}.linear", square),
        ]
        for gate in ("gate_attention", "gate_linear") if self.gated else ():
            for part in ("reset", "update", "candidate"):
                arrays += [uniform(f"{self.name}.{gate}.{part}_{of}", square)[0] for of in ("new", "old")]
            arrays.append(Parameter(f"{self.name}.{gate}.bias", (self.dim,), None, GATE_BIAS))
        return tuple(arrays)

    def forward(self, ops: Ops, params: Tree, x: Array, rows: Array, seen: Array) -> Array:
        """Outputs `[B, D]` from inputs `x [B, D]` and the standardised `rows [B, L, D]` that `seen [B, L]` marks."""
        x = self._added(ops, params, "gate_attention", x, self._attended(ops, params, x, rows, seen))
        inputs = normalised(ops, params, f"{self.name}.norm_linear", x)
        y = ops.linear(inputs, params[f"{self.name}.linear.weight"], params[f"{self.name}.linear.bias"], "relu")
        return self._added(ops, params, "gate_linear", x, y)

    def _attended(self, ops: Ops, params: Tree, x: Array, rows: Array, seen: Array) -> Array:
        def heads(y: Array) -> Array:
            return y.reshape((*y.shape[:-1], self.heads, self.dim // self.heads))

        weight, bias = (heads(params[f"{self.name}.norm_rows.{part}"]) for part in ("weight", "bias"))
        query = heads(normalised(ops, params, f"{self.name}.norm_query", x)) @ params[f"{self.name}.query.weight"].T
        query = query @ params[f"{self.name}.key.weight"] * (weight / math.sqrt(self.dim))
        means, sums = attention.attend(ops.xp, query, heads(rows), seen)
        values = (means * weight + sums[..., None] * bias) @ params[f"{self.name}.value.weight"].T
        weight, bias = params[f"{self.name}.out.weight"], params[f"{self.name}.out.bias"]
        return ops.linear(values.reshape(x.shape), weight, bias, None)

    def _added(self, ops: Ops, params: Tree, gate: str, old: Array, new: Array) -> Array:
        """The residual sum `old + new`; in a gated layer, the output of a GRU-type gate (Parisotto et al. 2020)."""
        if not self.gated:
            return old + new
        prefix = f"{self.name}.{gate}"

        def sums(part: str, old: Array) -> Array:
            return new @ params[f"{prefix}.{part}_new.weight"].T + old @ params[f"{prefix}.{part}_old.weight"].T

        reset = sigmoid(ops.xp, sums("reset", old))
        update = sigmoid(ops.xp, sums("update", old) - params[f"{prefix}.bias"])
        return (1 - update) * old + update * ops.xp.tanh(sums("candidate", reset * old))


@dataclass(frozen=True)
class TransformerSpec(NetworkSpec):
    """A `NetworkSpec` with a transformer between the features and the actor and critic."""

    blocks: tuple[Block, ...]
    behind: Linear
    """The linear layer after the transformer; actor and critic take its output."""
    memory: int
    """Number of remembered steps, L."""
    positions: Positions
    max_episode_steps: int
    """Number of distinct positions in an episode."""
    decoder: Decoder | None = None
    """Decoder from the output of `behind` to images; None if `reconstruction_coef` is 0."""
    reconstruction_coef: float = 0.0
    """Weight of the reconstruction loss."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters; the transformer's come last."""
        arrays = [*super().parameters, *(p for block in self.blocks for p in block.parameters())]
        if self.positions == "learned":
            shape = (self.max_episode_steps, self.behind.inputs)
            arrays.append(Parameter("memory.positions.weight", shape, math.sqrt(max(shape))))
        return (*arrays, *self.behind.parameters(), *(self.decoder.parameters() if self.decoder else ()))

    @property
    def carry(self) -> tuple[Carry, ...]:
        """The number of steps of the episode so far, and the inputs of each layer at the latest `memory` steps.

        Inputs are stored standardised and with their positions, except where positions are learnt: then both happen in
        every forward pass.
        """
        return Carry("steps", ()), Carry("inputs", (self.memory, len(self.blocks), self.behind.inputs), window=True)

    def forward(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """See `NetworkSpec.forward`."""
        layers = self._for_layers(ops, params)
        hidden, after = self._hidden(ops, layers, obs, carry, start)
        return self._outputs(ops, params, layers, hidden, after)

    @property
    def own_losses(self) -> Mapping[str, float]:
        """See `NetworkSpec.own_losses`: the weight of the reconstruction loss, if there is a decoder."""
        return {"reconstruction_loss": self.reconstruction_coef} if self.decoder else {}

    def losses(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> tuple[Head, Array, Tree]:
        """See `NetworkSpec.losses`."""
        layers = self._for_layers(ops, params)
        hidden, after = self._hidden(ops, layers, obs, carry, start)
        head, values, _ = self._outputs(ops, params, layers, hidden, after)
        if not self.decoder:
            return head, values, {}
        logits = ops.full(self.decoder.forward(ops, layers, hidden))
        return head, values, {"reconstruction_loss": cross_entropy(ops.xp, logits, ops.full(obs) / 255.0)}

    def _hidden(
        self, ops: Ops, layers: Tree, obs: Array, carry: Tree, start: Array | None
    ) -> tuple[Array, dict[str, Array]]:
        """The output `[B, D]` of the transformer, which actor and critic take, and the next carry."""
        assert start is not None
        steps = carry["steps"] * (1 - start)
        # Age of each row in steps, [1, L]; the last row is the previous step, of age 1.
        ago = ops.xp.cumsum(ops.xp.ones_like(carry["inputs"][:1, :, 0, 0]), -1)
        ago = self.memory + 1 - ago
        seen = ago <= steps[:, None]
        rows = self._rows(ops, layers, carry["inputs"], steps[:, None] - ago)
        x, kept = self._features(ops, layers, obs), []
        for layer, block in enumerate(self.blocks):
            kept.append(self._kept(ops, x, steps))
            x = block.forward(ops, layers, x, rows[:, :, layer], seen)
        x = ops.linear(x, layers[f"{self.behind.name}.weight"], layers[f"{self.behind.name}.bias"], "relu")
        return x, {"steps": steps + 1, "inputs": ops.full(ops.xp.stack(kept, 1))}

    def _kept(self, ops: Ops, x: Array, steps: Array) -> Array:
        """The row `[B, D]` to remember for a layer's input `x [B, D]` at the step `steps [B]` of its episode."""
        if self.positions == "learned":
            return x
        if self.positions == "absolute":  # positions count down from the last one, as in CleanRL
            x = x + attention.sinusoids(ops.xp, self.max_episode_steps - 1 - steps, x)
        return ops.standardised(x)

    def _rows(self, ops: Ops, layers: Tree, kept: Array, places: Array) -> Array:
        """Standardised rows `[B, L, layers, D]` with positions, from the stored rows `kept`.

        `places [B, L]` are the rows' steps in the episode.
        """
        rows = ops.for_layers({"kept": kept})["kept"]
        if self.positions != "learned":
            return rows
        places = ops.xp.clip(places, 0, self.max_episode_steps - 1)
        own = ops.take(layers["memory.positions.weight"], ops.xp.asarray(places, dtype=ops.xp.int32).reshape(-1), 0)
        return ops.standardised(rows + own.reshape((*rows.shape[:2], 1, rows.shape[-1])))


@dataclass(frozen=True)
class Trxl:
    """`network=trxl`; conf/network/trxl.yaml explains its options."""

    layers: int
    heads: int
    dim: int
    memory: int
    positions: str
    max_episode_steps: int
    gated: bool
    reconstruction_coef: float = 0.0

    @property
    def own_losses(self) -> Mapping[str, float]:
        """See `NetworkSpec.own_losses`."""
        return {"reconstruction_loss": self.reconstruction_coef} if self.reconstruction_coef else {}

    def build(self, observation_space: gymnasium.spaces.Box, action_space: gymnasium.Space) -> TransformerSpec:
        """The network for these spaces. Images pass through the convolutions of Mnih et al. 2015 first, except those
        that are too small for them, which it takes as vectors.
        """
        for name in ("layers", "heads", "dim", "memory", "max_episode_steps"):
            if getattr(self, name) < 1:
                raise ConfigError(f"network.{name}={getattr(self, name)}: must be at least 1")
        if self.positions not in ("none", "absolute", "learned"):
            raise ConfigError(f"network.positions={self.positions}: choose none, absolute or learned")
        if self.dim % self.heads or self.dim % 2:
            raise ConfigError(f"network.dim={self.dim}: must be even, and a multiple of network.heads={self.heads}")
        if not 0 <= self.reconstruction_coef < math.inf:
            raise ConfigError(f"network.reconstruction_coef={self.reconstruction_coef}: must be at least 0, and finite")
        shape = observation_space.shape
        images = len(shape) in (2, 3, 4) and min(sides_of(shape)) >= LEAST_PIXELS
        if self.reconstruction_coef and not (images and are_bytes(observation_space)):
            raise ConfigError(
                f"network.reconstruction_coef={self.reconstruction_coef}: observations of shape {shape} and type "
                f"{observation_space.dtype} are no images of bytes, of {LEAST_PIXELS} pixels or more; set it to 0"
            )
        decoder = None
        if images:
            plain = nature_network("trxl", observation_space, action_space)
            convolutions = [layer for layer in plain.convolutions if isinstance(layer, Conv)]
            convolutions = [dataclasses.replace(layer, uniform_bias=True) for layer in convolutions]
            plain = dataclasses.replace(plain, convolutions=tuple(convolutions))
            trunk = dataclasses.replace(plain.trunk[0], outputs=self.dim, uniform_bias=True)
            if self.reconstruction_coef:
                decoder = decoder_of(plain, self.dim)
        else:
            plain = Mlp([], "tanh").build(observation_space, action_space)
            trunk = Linear("trunk.0", plain.actor[0].inputs, self.dim, HIDDEN_GAIN, uniform_bias=True)
        parts = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        parts |= {
            "trunk": (trunk,),
            "actor": (Linear("actor.0", self.dim, plain.actions.lanes, ACTOR_GAIN, uniform_bias=True),),
            "critic": (Linear("critic.0", self.dim, 1, CRITIC_GAIN, uniform_bias=True),),
        }
        return TransformerSpec(
            **parts,
            blocks=tuple(Block(f"memory.{layer}", self.dim, self.heads, self.gated) for layer in range(self.layers)),
            behind=Linear(f"memory.{self.layers}", self.dim, self.dim, HIDDEN_GAIN, uniform_bias=True),
            memory=self.memory,
            positions=self.positions,  # type: ignore[arg-type]
            max_episode_steps=self.max_episode_steps,
            decoder=decoder,
            reconstruction_coef=self.reconstruction_coef,
        )
