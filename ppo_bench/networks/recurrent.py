"""Networks with a recurrent cell between the features and the actor and critic."""

from __future__ import annotations

from dataclasses import dataclass

from ppo_bench.mathematics.arrays import Array, Tree
from ppo_bench.mathematics.distributions import Head
from ppo_bench.mathematics.recurrent import CELLS
from ppo_bench.mathematics.weights import Parameter
from ppo_bench.networks.layers import Recurrence
from ppo_bench.networks.network import Carry, NetworkSpec, Outputs
from ppo_bench.networks.ops import Ops


@dataclass(frozen=True)
class RecurrentSpec(NetworkSpec):
    """A `NetworkSpec` with a recurrent cell: features enter the cell, and actor and critic take its hidden state.

    A minibatch has whole environments. Gradients flow through all steps of a rollout, from the carry with which the
    rollout began. There is no burn-in: during an update that carry stays the one that the older parameters computed.
    """

    memory: Recurrence

    sequences = True

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters; the cell's come last."""
        return (*super().parameters, *self.memory.parameters())

    @property
    def carry(self) -> tuple[Carry, ...]:
        """The arrays of the cell's state, `[units]` each."""
        return tuple(Carry(name, (self.memory.units,)) for name in CELLS[self.memory.cell].states)

    @property
    def weights_on_features(self) -> tuple[str, ...]:
        """See `NetworkSpec.weights_on_features`: the cell's."""
        return (f"{self.memory.name}.weight_ih",)

    def forward(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array | None) -> Outputs:
        """See `NetworkSpec.forward`."""
        assert start is not None
        layers = self._for_layers(ops, params)
        projected, weight, bias = self._projected(ops, layers, self._features(ops, layers, obs))
        kept = (1 - start)[:, None]
        state = tuple(ops.for_layers({name: carry[name] * kept for name in self._states}).values())
        recurrent = ops.linear(state[0], weight, bias, None)
        state, _ = CELLS[self.memory.cell].step(ops.xp, projected, recurrent, state)
        after = {name: ops.full(part) for name, part in zip(self._states, state, strict=True)}
        return self._outputs(ops, params, layers, state[0], after)

    def unroll(self, ops: Ops, params: Tree, obs: Array, carry: Tree, start: Array) -> tuple[Head, Array]:
        """See `NetworkSpec.unroll`. Everything but the recurrence is computed for all steps at once."""
        steps, rows = start.shape
        layers = self._for_layers(ops, params)
        features = self._features(ops, layers, obs.reshape((steps * rows, *obs.shape[2:])))
        projected, weight, bias = self._projected(ops, layers, features)
        state = tuple(ops.for_layers({name: carry[name] for name in self._states}).values())
        projected = projected.reshape((steps, rows, -1))
        hidden = ops.recur(self.memory.cell, projected, start, state, weight, bias)
        head, values, _ = self._outputs(ops, params, layers, hidden.reshape((steps * rows, -1)), {})
        first, values = (x.reshape((steps, rows, *x.shape[1:])) for x in (head[0], values))
        return self.head(params, first), values

    @property
    def _states(self) -> tuple[str, ...]:
        return CELLS[self.memory.cell].states

    def _projected(self, ops: Ops, layers: Tree, features: Array) -> tuple[Array, Array, Array]:
        """The projection `[B, G]` of `features [B, F]`, and the weight and bias that project the hidden state."""
        name = self.memory.name
        projected = ops.linear(features, layers[f"{name}.weight_ih"], layers[f"{name}.bias_ih"], None)
        return projected, layers[f"{name}.weight_hh"], layers[f"{name}.bias_hh"]
