"""`python -m tests.purejaxrl FOLDER NUM_ENVS NUM_SEEDS ITERATIONS PRECISION`: the speed of PureJaxRL's ppo.py.

FOLDER is a copy of its repository. It prints the environment steps per second of all iterations as one compiled
program, without the compilation: the second of two runs. PRECISION is that of JAX's matrix products, default or
highest. It needs gymnax before 1.0. Its file is executed unchanged. Imports that it does not use, or that fail on
current packages, are replaced in this process: brax and navix by empty modules, distrax by the formulas of its
`Categorical`.
"""

from __future__ import annotations

import importlib
import sys
import time
import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

STEPS = 128
CONFIG = {
    "LR": 2.5e-4,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ENV_NAME": "CartPole-v1",
    "ANNEAL_LR": True,
    "DEBUG": False,
}
"""The configuration at the end of its file, without what differs here; DEBUG prints episodes."""


class Categorical:
    """`distrax.Categorical`."""

    def __init__(self, logits: jax.Array) -> None:
        self.logits = jax.nn.log_softmax(logits)

    def sample(self, seed: jax.Array) -> jax.Array:
        return jax.random.categorical(seed, self.logits, axis=-1)

    def log_prob(self, value: jax.Array) -> jax.Array:
        chosen = jax.nn.one_hot(value, self.logits.shape[-1], dtype=self.logits.dtype)
        return jnp.sum(jnp.where(chosen == 0, 0.0, self.logits * chosen), axis=-1)

    def entropy(self) -> jax.Array:
        return -jnp.sum(jnp.exp(self.logits) * self.logits, axis=-1)


def _module(name: str, **content: Any) -> None:
    module: Any = types.ModuleType(name)
    vars(module).update(content)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def patch() -> None:
    """Let PureJaxRL's files be imported with what is installed."""
    import gymnasium

    vars(jax).update(tree_map=jax.tree.map)
    sys.modules |= {"gym": gymnasium, "gym.spaces": gymnasium.spaces}
    _module("distrax", Categorical=Categorical)
    for name in ("brax", "brax.envs", "brax.envs.wrappers", "navix"):
        _module(name)
    _module("brax.envs.wrappers.training", EpisodeWrapper=None, AutoResetWrapper=None)


def main() -> None:
    """See the module's docstring."""
    folder, precision = Path(sys.argv[1]), sys.argv[5]
    num_envs, num_seeds, iterations = map(int, sys.argv[2:5])
    sys.path.insert(0, str(folder / "purejaxrl"))
    patch()
    jax.config.update("jax_default_matmul_precision", precision)
    make_train = importlib.import_module("ppo").make_train
    steps = num_envs * STEPS * iterations
    train = make_train(CONFIG | {"NUM_ENVS": num_envs, "NUM_STEPS": STEPS, "TOTAL_TIMESTEPS": steps})
    key = jax.random.PRNGKey(30)
    if num_seeds > 1:
        train, key = jax.vmap(train), jax.random.split(key, num_seeds)
    compiled = jax.jit(train).lower(key).compile()
    for _ in range(2):
        started = time.perf_counter()
        jax.block_until_ready(compiled(key))
        seconds = time.perf_counter() - started
    print(steps * num_seeds / seconds)


if __name__ == "__main__":
    main()
