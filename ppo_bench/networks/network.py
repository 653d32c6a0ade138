"""Framework-independent networks: layers, parameters, memory and the policy's distribution.

A network is an optional shared trunk, an actor and a critic, each a chain of layers. Its forward pass is written once,
over the operations of a framework (`ppo_bench/networks/ops.py`). One with memory is a subclass that declares a `carry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np

from ppo_bench.mathematics import distributions
from ppo_bench.mathematics.arrays import Array, Arrays, Tree
from ppo_bench.mathematics.distributions import Head
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import channels_last
from ppo_bench.networks.layers import Conv, ImageLayer, Linear, MaxPool
from ppo_bench.networks.ops import Ops, normalised


@dataclass(frozen=True)
class Actions:
    """The actions of a policy: integers or vectors of floats."""

    shape: tuple[int, ...]
    """Shape of one action: `()` for a single integer, `(K,)` for K integers or K floats."""
    choices: tuple[int, ...]
    """Number of choices of each integer component; empty for vectors of floats."""

    @property
    def lanes(self) -> int:
        """Number of actor outputs for one action: the sum of all choices, or the number of dimensions."""
        return sum(self.choices) or self.shape[0]


ILLEGAL = -1e9
"""The logit of an illegal choice. It is finite, and small enough that probability, entropy term and gradient are 0."""


class Carry(NamedTuple):
    """The declaration of one array of a network's memory."""

    name: str
    shape: tuple[int, ...]
    """Shape for one environment."""
    window: bool = False
    """Whether the first axis indexes the latest K steps, the latest one last. `forward` takes the K rows and returns
    only the row of the current step. The rows carry no gradient, and minibatches read them from the rollout's storage.
    """


class Outputs(NamedTuple):
    """Result of `NetworkSpec.forward`."""

    head: Head
    values: Array
    carry: Tree


class Acted(NamedTuple):
    """Result of `NetworkSpec.act`; arrays `[N, ...]`."""

    actions: Array
    head: Array
    """The first part of the policy's head: logits or mean."""
    values: Array
    carry: Tree


@dataclass(frozen=True)
class NetworkSpec:
    """A feed-forward network: layers from observations to the policy's head and the value."""

    convolutions: tuple[ImageLayer, ...]
    """Image layers shared by actor and critic; empty if observations are not images."""
    trunk: tuple[Linear, ...]
    """Linear layers shared by actor and critic, after the convolutions; may be empty."""
    actor: tuple[Linear, ...]
    critic: tuple[Linear, ...]
    observation_shape: tuple[int, ...]
    """Shape of one observation of the environment, before `arrange`."""
    uint8: bool
    """Whether observations are bytes, which are stored as such and divided by 255 (`scaled_weights`)."""
    actions: Actions
    undivided_channels: int = field(default=0, kw_only=True)
    """Number of last channels, in images of bytes, whose values from 0 to 255 are not divided by 255."""

    @property
    def discrete(self) -> bool:
        """Whether actions are integers, not vectors of floats."""
        return bool(self.actions.choices)

    @property
    def distribution(self) -> distributions.Distribution:
        """The policy's distribution, whose parameters are the actor's outputs."""
        if not self.discrete:
            return distributions.NORMAL
        if self.actions.shape == ():
            return distributions.CATEGORICAL
        return distributions.multi_categorical(self.actions.choices)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters, in the order of the layers; the `actor.log_std` of a normal policy comes last."""
        layers: tuple[ImageLayer | Linear, ...] = (*self.convolutions, *self.trunk, *self.actor, *self.critic)
        arrays = tuple(parameter for layer in layers for parameter in layer.parameters())
        return arrays if self.discrete else (*arrays, Parameter("actor.log_std", (self.actions.lanes,), None))

    def require(self, library: str) -> None:
        """Raise `ConfigError` if `library`, torch or flax, cannot compute the network."""

    def initial(self, seed: int) -> Arrays:
        """Initial values of the parameters that do not follow from their declaration; none by default."""
        return {}

    @property
    def convolves(self) -> bool:
        """Whether most of the arithmetic is convolutions."""
        return bool(self.convolutions)

    @property
    def carry(self) -> tuple[Carry, ...]:
        """Arrays that the network remembers from one step to the next; a feed-forward network has none."""
        return ()

    @property
    def windows(self) -> tuple[Carry, ...]:
        """The arrays of the carry that are windows over the latest steps."""
        return tuple(carry for carry in self.carry if carry.window)

    @property
    def separate_critic(self) -> bool:
        """Whether the critic shares no layer with the actor; false for a subclass with a forward pass of its own."""
        own = type(self)._features, type(self).forward
        return own == (NetworkSpec._features, NetworkSpec.forward) and not (self.convolutions or self.trunk)

    @property
    def sequences(self) -> bool:
        """Whether minibatches consist of whole environments.

        If true, gradients flow through the memory from the first step of the rollout (`unroll`). If false, minibatches
        consist of single transitions, each with the carry that the network had at that step.
        """
        return False

    def forward(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """Head, values `[B]` and the next carry, from observations `[B, ...]` in the layout of `arrange`.

        With S > 1 reward streams, values are `[B, S]`. `carry` holds an array `[B, ...]` for each declared name.
        `start [B]` is 1 where the carry is reset before this step, else 0. Networks without a carry take `{}` and None.
        The next carry holds only the new row of a window. Layers compute in the layers' dtype; head and values have the
        parameters' dtype.
        """
        layers = self._for_layers(ops, params)
        return self._outputs(ops, params, layers, self._features(ops, layers, obs), carry)

    @property
    def own_losses(self) -> Mapping[str, float]:
        """Weights, by name, of losses that the network adds to the algorithm's; an empty dictionary by default."""
        return {}

    def losses(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> tuple[Head, Array, Tree]:
        """Head and values of `forward` for transitions, and the scalars named by `own_losses`."""
        head, values, _ = self.forward(ops, params, obs, carry, start)
        return head, values, {}

    def step(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """`forward`, with complete windows in the next carry: the oldest row dropped and the new one appended."""
        head, values, after = self.forward(ops, params, obs, carry, start)
        windows = {c.name: ops.xp.concatenate((carry[c.name][:, 1:], after[c.name][:, None]), 1) for c in self.windows}
        return Outputs(head, values, {**after, **windows})

    def _for_layers(self, ops: Ops, params: Tree) -> Tree:
        """Parameters in the layers' dtype, with `scaled_weights` divided by 255."""
        if self.uint8:
            params = {**params, **{name: self._scaled(ops, params[name]) for name in self.scaled_weights}}
        return ops.for_layers(params)

    def _scaled(self, ops: Ops, weight: Array) -> Array:
        """A first-layer `weight [..., channels]` divided by 255, except for the undivided channels."""
        if not self.undivided_channels:
            return weight / 255.0
        divided = weight.shape[-1] - self.undivided_channels
        return ops.xp.concatenate((weight[..., :divided] / 255.0, weight[..., divided:]), -1)

    def _outputs(self, ops: Ops, params: Tree, layers: Tree, features: Array, carry: Tree) -> Outputs:
        """Outputs of actor and critic for `features [B, F]`; `layers` are `params` after `_for_layers`."""
        output = ops.full(_chain(ops, self.actor, layers, features))
        values = _chain(ops, self.critic, layers, features)
        values = ops.full(values.squeeze(-1) if self.critic[-1].outputs == 1 else values)
        return Outputs(self.head(params, output), values, carry)  # log_std stays in the parameters' dtype

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
        """Actions `[B]` or `[B, A]`, sampled with `noise [B, A]` among the choices that `legal [B, A]` allows.

        The other arguments and results are those of `forward`.
        """
        head, values, carry = self.forward(ops, params, obs, carry, start)
        head = masked(ops.xp, head, legal)
        return Acted(self.distribution.sample(ops.xp, head, noise), head[0], values, carry)

    def _features(self, ops: Ops, params: Tree, obs: Array) -> Array:
        """Features `[B, F]` that actor and critic share; `params` are in the layers' dtype."""
        return features(ops, self.convolutions, self.trunk, params, obs)

    def unroll(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array) -> tuple[Head, Array]:
        """Heads `[T, B, ...]` and values `[T, B]` of the sequences `obs [T, B, ...]`.

        `carry` is the one before the first step; it is reset before each step where `start [T, B]` is 1.
        """

        def step(carry: Tree, row: Tree) -> tuple[Tree, Tree]:
            head, values, carry = self.forward(ops, params, row["obs"], carry, row["start"])
            return carry, {"head": head[0], "values": values}

        _, outputs = ops.scan(step, carry, {"obs": obs, "start": start})
        return self.head(params, outputs["head"]), outputs["values"]

    def head(self, params: Tree, first: Array) -> Head:
        """The policy's head from its `first` part: (logits,), or (mean, log_std) with `log_std` from `params`."""
        return (first,) if self.discrete else (first, params["actor.log_std"])

    def with_streams(self, streams: int) -> Self:
        """A copy of the network whose critic has `streams` values per observation, one for each reward stream."""
        *hidden, last = self.critic
        return replace(self, critic=(*hidden, replace(last, outputs=streams)))

    @property
    def scaled_weights(self) -> tuple[str, ...]:
        """Names of the first layers' weights, which `forward` divides by 255 in place of observations of bytes."""
        first = (*self.convolutions, *self.trunk)[:1] if self.uint8 else ()
        if self.uint8 and not first:
            return self.weights_on_features
        return tuple(f"{layer.name}.weight" for layer in first if isinstance(layer, Conv | Linear))

    @property
    def weights_on_features(self) -> tuple[str, ...]:
        """Names of the weights that features are multiplied by; they are observations if no layer comes before."""
        return f"{self.actor[0].name}.weight", f"{self.critic[0].name}.weight"

    def arrange(self, observations: Array) -> Array:
        """`observations [N, ...]` in the network's layout, views where possible: images channels last, others flat."""
        if not self.convolutions:
            return observations.reshape(observations.shape[0], -1)
        return channels_last(np, observations, self.observation_shape)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one observation in the layout of `arrange`."""
        return self.arrange(np.empty((1, *self.observation_shape), np.uint8)).shape[1:]


def masked(xp: Any, head: Head, legal: Array | None) -> Head:
    """The policy's head with the logit `ILLEGAL` where `legal [..., A]` is false; if it is None, `head` unchanged."""
    return head if legal is None else (xp.where(legal, head[0], ILLEGAL),)


def features(
    ops: Ops, convolutions: tuple[ImageLayer, ...], trunk: tuple[Linear, ...], params: Tree, obs: Array
) -> Array:
    """Features `[B, F]` of observations `[B, ...]`: `convolutions`, then `trunk`. `params` are in the layers' dtype."""
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
        weight, bias = params[f"{layer.name}.weight"], params[f"{layer.name}.bias"]
        if layer.normalised:
            y = normalised(ops, params, f"{layer.name}.norm", ops.linear(x, weight, bias, None))
            y = ops.activate(layer.activation, y)
        else:
            y = ops.linear(x, weight, bias, layer.activation)
        x = x + y if layer.residual else y
    return x
