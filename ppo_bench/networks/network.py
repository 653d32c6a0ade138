"""What a network is in every framework: its parameters, its carry and the policy's distribution.

Its forward pass is a module's: a `torch.nn.Module` of `networks/torch/` or a `flax.linen.Module` of `networks/flax/`.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ppo_bench.mathematics import distributions
from ppo_bench.mathematics.arrays import Array, Arrays, Tree
from ppo_bench.mathematics.distributions import PolicyOutputs
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.convolutions import channels_last
from ppo_bench.networks.ops import Ops, PortableModule

if TYPE_CHECKING:
    from gymnasium.spaces import Space


@dataclass(frozen=True)
class ActionSpec:
    """The actions of a policy: integers or vectors of floats."""

    shape: tuple[int, ...]
    """Shape of one action: `()` for a single integer, `(K,)` for K integers or K floats."""
    choices: tuple[int, ...]
    """Number of choices of each integer component; empty for vectors of floats."""

    @property
    def action_dim(self) -> int:
        """Number of actor outputs for one action: the sum of all choices, or the number of dimensions."""
        return sum(self.choices) or self.shape[0]


def action_spec(action_space: Space) -> ActionSpec:
    """The actions of a gymnasium space: one integer, several integers, or a vector of floats."""
    from gymnasium import spaces

    if isinstance(action_space, spaces.Discrete):
        return ActionSpec((), (int(action_space.n),))
    if isinstance(action_space, spaces.MultiDiscrete):
        return ActionSpec(action_space.shape, tuple(int(n) for n in action_space.nvec))
    if isinstance(action_space, spaces.MultiBinary):
        return ActionSpec(action_space.shape, (2,) * action_space.shape[0])
    return ActionSpec(action_space.shape or (), ())


MASKED_LOGIT = -1e9
"""The logit of an illegal choice. It is finite, and small enough that probability, entropy term and gradient are 0."""


class CarrySpec(NamedTuple):
    """The declaration of one array of a network's carry, which it passes from step to step."""

    name: str
    shape: tuple[int, ...]
    """Shape for one environment."""
    window: bool = False
    """Whether the first axis indexes the latest K steps, the latest one last. `forward` takes the K rows and returns
    only the row of the current step. The rows carry no gradient, and minibatches read them from the rollout's storage.
    """


class NetworkOutputs(NamedTuple):
    """Result of `NetworkSpec.forward`."""

    policy_outputs: PolicyOutputs
    values: Array
    carry: Tree


class ActOutputs(NamedTuple):
    """Result of `NetworkSpec.act`; arrays `[N, ...]`."""

    actions: Array
    logits_or_mean: Array
    """The first part of the policy's outputs: logits or mean."""
    values: Array
    carry: Tree


@dataclass(frozen=True)
class NetworkSpec:
    """A policy and its critic: a module, its parameters, and what is the same in all frameworks."""

    module: PortableModule
    """The module. It returns the policy's outputs `[B, A]`, values `[B]`, `[B, 1]` or `[B, S]` and, with a carry,
    the next one, from observations `[B, ...]`, the carry and the episode-start flags `[B]`."""
    parameters: tuple[Parameter, ...]
    """All parameters: the module's and, for actions of floats, `actor.log_std`."""
    observation_shape: tuple[int, ...]
    """Shape of one observation of the environment, before `to_input_layout`."""
    uint8: bool
    """Whether observations are bytes, which are stored as such."""
    actions: ActionSpec
    _: KW_ONLY
    images: bool = False
    """Whether the module takes images `[H, W, C]`; else it takes vectors."""
    scaled_weights: tuple[str, ...] = ()
    """Names of the weights that observations of bytes meet first; they are divided by 255 in place of the bytes."""
    separate_critic: bool = False
    """Whether the critic shares no layer with the actor; there is no carry then."""
    carry: tuple[CarrySpec, ...] = ()
    """Arrays that the network remembers from one step to the next; a feed-forward network has none."""

    @property
    def learns_from_sequences(self) -> bool:
        """Whether minibatches consist of whole environments: the carry has no windows.

        If true, the module takes sequences, too, and gradients flow through the carry from the first step of the
        rollout. If false, minibatches consist of single transitions, each with the carry that the network had then.
        """
        return bool(self.carry) and not self.windows

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

    def require(self, library: str) -> None:
        """Raise `ConfigError` if `library`, torch or flax, cannot compute the network."""

    def initial_params(self, seed: int) -> Arrays:
        """Initial values of the parameters that do not follow from their declaration; none by default."""
        return {}

    @property
    def windows(self) -> tuple[CarrySpec, ...]:
        """The arrays of the carry that are windows over the latest steps."""
        return tuple(carry for carry in self.carry if carry.window)

    def forward(self, ops: Ops, params: Tree, obs: Array, carry: Tree, episode_start: Array | None) -> NetworkOutputs:
        """Policy outputs, values `[B]` and the next carry, from observations `[B, ...]` in the layout of
        `to_input_layout`.

        With S > 1 reward streams, values are `[B, S]`. `carry` holds an array `[B, ...]` for each declared name.
        `episode_start [B]` is 1 where the carry is reset before this step, else 0. Networks without a carry take `{}`
        and None. The next carry holds the new row of a window. Modules compute in the layers' dtype; outputs and values
        have the parameters' dtype. With `episode_start [T, B]`, observations are sequences `[T, B, ...]`, and so are
        outputs and values.
        """
        own = params
        if self.scaled_weights:
            own = {**params, **{name: params[name] / 255.0 for name in self.scaled_weights}}
        carry_inputs = (carry, episode_start) if carry else ()
        output, values, *after = ops.call(self.module, ops.to_layer_dtype(own), ops.cast_obs(obs), *carry_inputs)
        values = values.squeeze(-1) if values.ndim == output.ndim and values.shape[-1] == 1 else values
        return NetworkOutputs(
            self.policy_outputs(params, ops.to_param_dtype(output)),  # log_std keeps its dtype
            ops.to_param_dtype(values),
            {name: ops.to_param_dtype(x) for arrays in after for name, x in arrays.items()},
        )

    def step(self, ops: Ops, params: Tree, obs: Array, carry: Tree, episode_start: Array | None) -> NetworkOutputs:
        """`forward`, with complete windows in the next carry: the oldest row dropped and the new one appended."""
        policy_outputs, values, after = self.forward(ops, params, obs, carry, episode_start)
        windows = {c.name: ops.xp.concatenate((carry[c.name][:, 1:], after[c.name][:, None]), 1) for c in self.windows}
        return NetworkOutputs(policy_outputs, values, {**after, **windows})

    def act(
        self,
        ops: Ops,
        params: Tree,
        obs: Array,
        noise: Array,
        carry: Tree,
        episode_start: Array | None = None,
        action_mask: Array | None = None,
    ) -> ActOutputs:
        """Actions `[B]` or `[B, A]`, sampled with `noise [B, A]` among the choices that `action_mask [B, A]` allows.

        The other arguments and results are those of `forward`.
        """
        policy_outputs, values, carry = self.forward(ops, params, obs, carry, episode_start)
        policy_outputs = mask_logits(ops.xp, policy_outputs, action_mask)
        return ActOutputs(self.distribution.sample(ops.xp, policy_outputs, noise), policy_outputs[0], values, carry)

    def policy_outputs(self, params: Tree, first: Array) -> PolicyOutputs:
        """The policy's outputs from their `first` part: (logits,), or (mean, log_std) with `log_std` from `params`."""
        return (first,) if self.discrete else (first, params["actor.log_std"])

    def to_input_layout(self, observations: Array, xp: Any = np) -> Array:
        """`observations [N, ...]` in the network's layout, views where possible: images channels last, others flat."""
        if not self.images:
            return observations.reshape(observations.shape[0], -1)
        return channels_last(xp, observations, self.observation_shape)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one observation in the layout of `to_input_layout`."""
        return self.to_input_layout(np.empty((1, *self.observation_shape), np.uint8)).shape[1:]


class Network(Protocol):
    """A choice of the group `network`, made from its YAML file."""

    def build(self, observation_space: Any, action_space: Any, streams: int = 1) -> NetworkSpec:
        """The network for these spaces, with a value for each of the algorithm's `streams` of rewards."""


def mask_logits(xp: Any, policy_outputs: PolicyOutputs, action_mask: Array | None) -> PolicyOutputs:
    """The policy's outputs with the logit `MASKED_LOGIT` where `action_mask [..., A]` is false; unchanged if it is
    None."""
    return policy_outputs if action_mask is None else (xp.where(action_mask, policy_outputs[0], MASKED_LOGIT),)
