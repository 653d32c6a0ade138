"""A running script that learns with JAX, and its patches: supplied weights, noise, permutations and environment seeds.

Keys of `jax.random` become counters of splits, from which the iteration follows, and the step or epoch within it.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState

from ppo_bench.commands.equivalence.cleanrl import envpool_compat
from ppo_bench.commands.equivalence.cleanrl.script import Script, patch
from ppo_bench.mathematics import noise

Key = Any


class JaxScript(Script):
    """A running script whose state is `agent_state`, of three networks with two parts each."""

    def end_iteration(self) -> None:
        """See `Script.end_iteration`."""
        state, storage = self.variables["agent_state"], self.variables["storage"]
        adam = state.opt_state[1].inner_state[0]
        moments = {"mean": _flat(adam.mu), "variance": _flat(adam.nu)}
        self.record(np.asarray(storage.actions), _flat(state.params), moments)


def _flat(params: Any) -> dict[str, np.ndarray]:
    """Arrays of the script's `AgentParams` as `<network>.<layer>.<kernel or bias>`."""
    return {
        f"{network}.{layer}.{part}": np.asarray(array)
        for network, tree in vars(params).items()
        for layer, parts in tree["params"].items()
        for part, array in parts.items()
    }


def install(script: JaxScript) -> None:
    """Replace random numbers, weights and EnvPool's interface."""
    sys.modules["gym"] = gymnasium
    envpool_compat.install(script)
    vars(jax)["tree_map"] = jax.tree.map
    _supply_numbers(script)
    _supply_weights(script)
    if script.root.precision == "float64":
        _widen_schedules()


def _supply_numbers(script: Script) -> None:
    num_steps, seed = script.ppo.num_steps, jnp.full(1, script.root.seed, jnp.int32)
    splits = num_steps + script.ppo.update_epochs  # of an iteration

    @patch(jax.random, "PRNGKey")
    def first_key(original: Any, seed: int) -> Key:
        return jnp.int32(0)

    @patch(jax.random, "split")
    def split(original: Any, key: Key, num: int = 2) -> Any:
        if key.dtype != jnp.int32:
            return original(key, num)
        if num == 4:  # the script's key, and those of three networks, whose weights are replaced
            return [key, *original(jax.random.key(0), 3)]
        return key + jnp.int32(1), key

    @patch(jax.random, "uniform")
    def uniform(original: Any, key: Key, shape: tuple[int, int]) -> jax.Array:
        envs, lanes = (jnp.arange(size, dtype=jnp.int32) for size in shape)
        words = noise.action_words(jnp, seed, (key // splits + 1)[None], (key % splits)[None], envs, lanes)
        drawn: jax.Array = noise.uniform(jnp, words[0], jnp.asarray(0.0).dtype)[0]
        return drawn

    @patch(jax.random, "permutation")
    def permutation(original: Any, key: Key, x: Any, independent: bool = False) -> Any:
        samples = jnp.arange(x if isinstance(x, int) else len(x), dtype=jnp.int32)
        epoch = (key % splits - num_steps)[None]
        order = noise.permutations(jnp, seed, (key // splits + 1)[None], epoch, samples)[0]
        return order if isinstance(x, int) else x[order]


def _supply_weights(script: JaxScript) -> None:
    own_create = TrainState.create.__func__  # type: ignore[attr-defined]

    def create(cls: Any, /, *, apply_fn: Any, params: Any, tx: Any, **others: Any) -> Any:
        given = script.weights_for({name: array.shape for name, array in _flat(params).items()})
        trees: dict[str, Any] = {}
        for name, array in given.items():
            network, layer, part = name.split(".")
            layers = trees.setdefault(network, {"params": {}})["params"]
            layers.setdefault(layer, {})[part] = jnp.asarray(array, jnp.asarray(0.0).dtype)
        type(params).__contains__ = lambda self, key: False  # Flax asks since 0.7 for a certain key
        return own_create(cls, apply_fn=apply_fn, params=params.replace(**trees), tx=tx, **others)

    setattr(TrainState, "create", classmethod(create))  # noqa: B010 (mypy takes no assignment)


def _widen_schedules() -> None:
    """Count a schedule's steps in int64, since JAX divides int32 in float32 even where float64 is enabled."""

    @patch(optax, "inject_hyperparams")
    def inject(original: Any, factory: Any) -> Any:
        make = original(factory, hyperparam_dtype=jnp.float64)

        def made(learning_rate: Any, **others: Any) -> Any:
            schedule = (
                (lambda count: learning_rate(count.astype(jnp.int64))) if callable(learning_rate) else learning_rate
            )
            return make(learning_rate=schedule, **others)

        return made
