"""Networks apart from any framework: layers, parameters, memory and the policy on top.

A network is an optional shared trunk, an actor and a critic, each a chain of layers. Its forward pass is stated once,
over the operations of a framework (`ppo_bench/networks/ops.py`). A network with a memory of its own is a subclass that
declares a `carry` and whose `forward` reads and returns it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.ppo import Head
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.layers import Conv, ImageLayer, Linear, MaxPool
from ppo_bench.networks.ops import Ops


@dataclass(frozen=True)
class Actions:
    """The choices of a policy."""

    shape: tuple[int, ...]
    """Shape of one action: `()` for one choice, `(K,)` for K choices or K dimensions."""
    choices: tuple[int, ...]
    """How many each component chooses from; empty for vectors of floats."""

    @property
    def lanes(self) -> int:
        """Outputs of the actor for one action."""
        return sum(self.choices) or self.shape[0]


ILLEGAL = -1e9
"""The logit of a choice that is never taken: its probability, entropy and gradient are exactly 0, none is infinite."""


class Carry(NamedTuple):
    """An array of a network's memory."""

    name: str
    shape: tuple[int, ...]
    """Shape for one environment."""
    window: bool = False
    """Its first axis goes over the latest steps, the last one last; of these `forward` returns a row for the step. It
    is learnt from without a gradient, where it lies."""


class Outputs(NamedTuple):
    """Result of `NetworkSpec.forward`."""

    head: Head
    values: Array
    carry: Tree


class Acted(NamedTuple):
    """Result of `NetworkSpec.act`, `[N, ...]` each."""

    actions: Array
    head: Array
    """The first part of the policy's head: logits or mean."""
    values: Array
    carry: Tree


@dataclass(frozen=True)
class NetworkSpec:
    """Layers from observations to `(head, value)`; see the module's docstring."""

    convolutions: tuple[ImageLayer, ...]
    """Shared; empty where observations are not images."""
    trunk: tuple[Linear, ...]
    """Shared, after the convolutions; may be empty."""
    actor: tuple[Linear, ...]
    critic: tuple[Linear, ...]
    observation_shape: tuple[int, ...]
    """Shape of one observation as the environment gives it."""
    uint8: bool
    """Observations are bytes: they stay bytes until the network, to which 255 is 1; see `scaled_weights`."""
    actions: Actions
    undivided_channels: int = field(default=0, kw_only=True)
    """The last channels of images of bytes to which 255 is 255."""

    @property
    def discrete(self) -> bool:
        """Whether actions are choices (integers), not vectors of floats."""
        return bool(self.actions.choices)

    @property
    def num_actions(self) -> int:
        """Lanes of the actor's output: all choices together, or dimensions."""
        return self.actions.lanes

    @property
    def distribution(self) -> ppo.Distribution:
        """The family of policies that the actor's output parametrises."""
        if not self.discrete:
            return ppo.NORMAL
        return ppo.CATEGORICAL if self.actions.shape == () else ppo.multi_categorical(self.actions.choices)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every array, in the order of the layers; a normal policy's `actor.log_std` comes last."""
        layers: tuple[ImageLayer | Linear, ...] = (*self.convolutions, *self.trunk, *self.actor, *self.critic)
        arrays = tuple(parameter for layer in layers for parameter in layer.parameters())
        return arrays if self.discrete else (*arrays, Parameter("actor.log_std", (self.num_actions,), None))

    @property
    def carry(self) -> tuple[Carry, ...]:
        """Arrays that the network remembers from one step to the next; none here."""
        return ()

    @property
    def windows(self) -> tuple[Carry, ...]:
        """The arrays of the carry that are windows of the latest steps."""
        return tuple(carry for carry in self.carry if carry.window)

    @property
    def sequences(self) -> bool:
        """Whether it learns from whole environments, so that gradients flow through its memory from the rollout's first
        step (`unroll`); otherwise from single transitions, each with the carry that it had when it acted."""
        return False

    def forward(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """Head, values `[B]` and the next carry, from observations `[B, ...]` as `arrange` gives them.

        Of several streams of rewards values are `[B, S]`.
        `carry` has an array `[B, ...]` for each of the declared names, and `start [B]` is 1 where it is to be forgotten
        before this step, else 0; without a declared carry they are `{}` and None. Of a window the next carry has the
        new row alone. Layers compute in their own type; head and values are of the parameters' type.
        """
        layers = self._for_layers(ops, params)
        return self._outputs(ops, params, layers, self._features(ops, layers, obs), carry)

    @property
    def own_losses(self) -> Mapping[str, float]:
        """Losses that the network itself adds to the algorithm's, by name, with their weights; none here."""
        return {}

    def losses(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> tuple[Head, Array, Tree]:
        """Head and values as `forward`, for a minibatch of transitions, and the scalars of `own_losses`."""
        head, values, _ = self.forward(ops, params, obs, carry, start)
        return head, values, {}

    def step(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """`forward`, with the whole of the next carry."""
        head, values, after = self.forward(ops, params, obs, carry, start)
        windows = {c.name: ops.xp.concatenate((carry[c.name][:, 1:], after[c.name][:, None]), 1) for c in self.windows}
        return Outputs(head, values, {**after, **windows})

    def _for_layers(self, ops: Ops, params: Tree) -> Tree:
        """Parameters as layers take them: in their type, and the weights that bytes meet first divided by 255."""
        if self.uint8:
            params = {**params, **{name: self._scaled(ops, params[name]) for name in self.scaled_weights}}
        return ops.for_layers(params)

    def _scaled(self, ops: Ops, weight: Array) -> Array:
        """A weight that bytes meet, `[..., channels]`, so that 255 is 1 to it in all but the undivided channels."""
        if not self.undivided_channels:
            return weight / 255.0
        divided = weight.shape[-1] - self.undivided_channels
        return ops.xp.concatenate((weight[..., :divided] / 255.0, weight[..., divided:]), -1)

    def _outputs(self, ops: Ops, params: Tree, layers: Tree, features: Array, carry: Tree) -> Outputs:
        """What actor and critic make of features `[B, F]`; `layers` are `params` for layers."""
        output = ops.full(_chain(ops, self.actor, layers, features))
        values = _chain(ops, self.critic, layers, features)
        values = ops.full(values.squeeze(-1) if self.critic[-1].outputs == 1 else values)
        return Outputs(self.head(params, output), values, carry)  # the deviation is no layer's: never rounded

    def act(
        self,
        ops: Ops,
        params: Tree,
        obs: Array,
        noise: Array,
        carry: Tree,
        start: Array | None = None,
        legal: Array | None = None,
    ) -> Acted:
        """Actions `[B]` or `[B, A]` sampled with `noise [B, A]`, of the `legal [B, A]`; all else as `forward`."""
        head, values, carry = self.forward(ops, params, obs, carry, start)
        head = masked(ops.xp, head, legal)
        return Acted(self.distribution.sample(ops.xp, head, noise), head[0], values, carry)

    def _features(self, ops: Ops, params: Tree, obs: Array) -> Array:
        """Features that actor and critic share, `[B, F]`."""
        return features(ops, self.convolutions, self.trunk, params, obs)

    def unroll(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array) -> tuple[Head, Array]:
        """Heads `[T, B, ...]` and values `[T, B]` of whole sequences `obs [T, B, ...]` from the carry before the first
        step, forgotten wherever `start [T, B]` is 1."""

        def step(carry: Tree, row: Tree) -> tuple[Tree, Tree]:
            head, values, carry = self.forward(ops, params, row["obs"], carry, row["start"])
            return carry, {"head": head[0], "values": values}

        _, outputs = ops.scan(step, carry, {"obs": obs, "start": start})
        return self.head(params, outputs["head"]), outputs["values"]

    def head(self, params: Tree, first: Array) -> Head:
        """The policy's head, from its first part: logits or mean."""
        return (first,) if self.discrete else (first, params["actor.log_std"])

    def with_streams(self, streams: int) -> Self:
        """The same with so many values for each observation, one of each stream of rewards."""
        *hidden, last = self.critic
        return replace(self, critic=(*hidden, replace(last, outputs=streams)))

    @property
    def scaled_weights(self) -> tuple[str, ...]:
        """The weights that bytes meet first, divided by 255 in use: so that the bytes, which are many, need not be."""
        if not self.uint8:
            return ()
        first = (*self.convolutions, *self.trunk)[:1] or (self.actor[0], self.critic[0])
        return tuple(f"{layer.name}.weight" for layer in first if isinstance(layer, Conv | Linear))

    def arrange(self, observations: Array) -> Array:
        """A view `[N, ...]` of observations as the network takes them: images channels last, all else flat."""
        if not self.convolutions:
            return observations.reshape(observations.shape[0], -1)
        return np.moveaxis(observations, 1, -1) if channels_first(self.observation_shape) else observations

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one observation as `arrange` returns it."""
        return self.arrange(np.empty((1, *self.observation_shape), np.uint8)).shape[1:]


def masked(xp: Any, head: Head, legal: Array | None) -> Head:
    """The policy's head with the logits `ILLEGAL` where `legal [..., A]` is false; None leaves it."""
    return head if legal is None else (xp.where(legal, head[0], ILLEGAL),)


def features(
    ops: Ops, convolutions: tuple[ImageLayer, ...], trunk: tuple[Linear, ...], params: Tree, obs: Array
) -> Array:
    """What layers make of observations `[B, ...]`, `[B, F]`; `params` are those of layers."""
    if not convolutions:
        return _chain(ops, trunk, params, ops.flat(obs))
    x = ops.images(obs)
    for layer in convolutions:
        x = _image_layer(ops, layer, params, x)
    return _chain(ops, trunk, params, ops.flattened(x))


def _image_layer(ops: Ops, layer: ImageLayer, params: Tree, x: Array) -> Array:
    if isinstance(layer, MaxPool):
        return ops.max_pool(x)
    if isinstance(layer, Conv):
        return ops.convolve(layer, x, params[f"{layer.name}.weight"], params[f"{layer.name}.bias"])
    y = x + _image_layer(ops, layer.second, params, _image_layer(ops, layer.first, params, ops.relu(x)))
    return ops.activate(layer.activation, y)


def _chain(ops: Ops, layers: tuple[Linear, ...], params: Tree, x: Array) -> Array:
    for layer in layers:
        y = ops.linear(x, params[f"{layer.name}.weight"], params[f"{layer.name}.bias"], layer.activation)
        x = x + y if layer.residual else y
    return x


def channels_first(shape: tuple[int, ...]) -> bool:
    """Whether images of this shape have their channels first."""
    return shape[0] < shape[-1]
