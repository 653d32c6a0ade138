"""A running script that learns with JAX, and its patches: supplied weights, noise, permutations and environment seeds.

Keys of `jax.random` become counters of splits, from which the iteration follows, and the step or epoch within it.
"""

from __future__ import annotations

import functools
import sys
from typing import Any

import flax.training.train_state
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax

from ppo_bench.commands.equivalence.cleanrl import envpool_compat
from ppo_bench.commands.equivalence.cleanrl.script import Script
from ppo_bench.mathematics import noise

Key = Any


class JaxScript(Script):
    """A running script whose state is `agent_state`, of three networks with two parts each."""

    def end(self) -> None:
        """See `Script.end_iteration`."""
        own = self.own
        state, storage = own["agent_state"], own["storage"]
        adam = state.opt_state[1].inner_state[0]
        moments = {"mean": _flat(adam.mu), "variance": _flat(adam.nu)}
        self.end_iteration(np.asarray(storage.actions), _flat(state.params), moments)


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
    jax.tree_map = jax.tree.map  # type: ignore[attr-defined]
    script.used.update(("gym", "jax"))
    _supply_numbers(script)
    _supply_weights(script)
    if script.supply.precision == "float64":
        script.used.add("float64")
        _widen_schedules()


def _supply_numbers(script: Script) -> None:
    supply, real_key, real_split = script.supply, jax.random.PRNGKey, jax.random.split
    draws, one = supply.num_steps + supply.update_epochs, jnp.ones(1, jnp.int32)  # splits of an iteration

    def split(key: Key, num: int = 2) -> Any:
        if key.dtype != jnp.int32:
            return real_split(key, num)
        if num == 4:  # the script's key, and those of three networks, whose weights are replaced
            return [key, *real_split(real_key(0), 3)]
        return key + jnp.int32(1), key

    def uniform(key: Key, shape: tuple[int, int]) -> jax.Array:
        script.used.add("action noise")
        envs, lanes = (jnp.arange(size, dtype=jnp.int32) for size in shape)
        steps = (key % draws)[None]
        words = noise.action_words(jnp, one * supply.seed, (key // draws + 1)[None], steps, envs, lanes)
        uniform: jax.Array = noise.uniform(jnp, words[0], jnp.asarray(0.0).dtype)[0]
        return uniform

    def permutation(key: Key, x: Any, independent: bool = False) -> Any:
        script.used.add("permutations")
        epoch = (key % draws - supply.num_steps)[None]
        size = x if isinstance(x, int) else len(x)
        samples = jnp.arange(size, dtype=jnp.int32)
        order = noise.permutations(jnp, one * supply.seed, (key // draws + 1)[None], epoch, samples)[0]
        return order if isinstance(x, int) else x[order]

    random: Any = jax.random
    random.PRNGKey = lambda seed: jnp.int32(0)
    random.split, random.uniform, random.permutation = split, uniform, permutation


def _supply_weights(script: JaxScript) -> None:
    own_create = flax.training.train_state.TrainState.create.__func__  # type: ignore[attr-defined]

    def create(cls: Any, /, *, apply_fn: Any, params: Any, tx: Any, **others: Any) -> Any:
        script.used.add("weights")
        given = script.weights_for({name: array.shape for name, array in _flat(params).items()})
        trees: dict[str, Any] = {}
        for name, array in given.items():
            network, layer, part = name.split(".")
            layers = trees.setdefault(network, {"params": {}})["params"]
            layers.setdefault(layer, {})[part] = jnp.asarray(array, jnp.asarray(0.0).dtype)
        type(params).__contains__ = lambda self, key: False  # Flax asks since 0.7 for a certain key
        return own_create(cls, apply_fn=apply_fn, params=params.replace(**trees), tx=tx, **others)

    train_state: Any = flax.training.train_state.TrainState
    train_state.create = classmethod(create)


def _widen_schedules() -> None:
    """Count a schedule's steps in int64, since JAX divides int32 in float32 even where float64 is enabled."""
    own_inject = functools.partial(optax.inject_hyperparams, hyperparam_dtype=jnp.float64)

    def inject(factory: Any) -> Any:
        def made(learning_rate: Any, **others: Any) -> Any:
            if callable(learning_rate):
                return own_inject(factory)(learning_rate=lambda count: learning_rate(count.astype(jnp.int64)), **others)
            return own_inject(factory)(learning_rate=learning_rate, **others)

        return made

    optax.inject_hyperparams = inject
