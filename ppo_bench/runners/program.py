"""PPO iterations with environments that are part of a JAX program: collect, targets, update in one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppo_bench.envs.base import EnvStep, Seen
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.runners.env_steps import STEP_FLAGS, after_step
from ppo_bench.runners.jax_learning import Learning, TrainState
from ppo_bench.runners.jax_mesh import SAME, along


class Envs(NamedTuple):
    """State of the environments, on the device."""

    state: Any
    """State that the environment's own step function takes and returns."""
    arrays: Tree
    """The `normalization_arrays`, and the `env_arrays` except episode returns and lengths, which the host computes."""
    carry: Tree
    """Carry (recurrent state) of the network, `[N, ...]`."""


class Played(NamedTuple):
    """Arrays from which the host computes episode returns and lengths, `[N, T]`: rewards float32, flags bool."""

    raw_rewards: jax.Array
    episode_over: jax.Array
    valid: jax.Array
    """Flag that is false where a step only reset its environment."""


Iterate = Callable[..., tuple[TrainState, Envs, Played, dict[str, jax.Array]]]
"""Compiled `iterate` of some environments: takes `(learnt, envs, seed, hyperparameters, iteration)`.

The last three are scalars, `hyperparameters` a dictionary of them; iterations count from 1.
"""


def compiled(learning: Learning, env_step: EnvStep, envs: Envs) -> Iterate:
    """Compiled iteration of environments with the step function `env_step` and the structure of `envs`.

    It donates the buffers of its arguments `learnt` and `envs`.
    """
    changed = learning.specs, specs_of_envs(envs)
    program: Iterate = learning.devices.program(
        functools.partial(iterate, learning, env_step),
        (*changed, SAME, SAME, SAME),
        (*changed, along(0), SAME),
        donated=(0, 1),
    )
    return program


def specs_of_envs(envs: Envs) -> Any:
    """Sharding specs of `envs`: environments in equal parts, running statistics replicated."""
    arrays = {name: SAME if name.startswith("normalize.") else along(0) for name in envs.arrays}
    return Envs(along(0), arrays, along(0))  # type: ignore[arg-type]


def iterate(
    learning: Learning,
    env_step: EnvStep,
    learnt: TrainState,
    envs: Envs,
    seed: jax.Array,
    hyperparameters: Tree,
    iteration: jax.Array,
) -> tuple[TrainState, Envs, Played, Tree]:
    """Run an iteration; the returned metrics are all but `learning_rate` and `masked_fraction`.

    `hyperparameters` are those that are arguments of the program: the learning rate of this iteration, and others.
    """
    learning = learning.with_hyperparameters(hyperparameters)
    noise = learning.action_noise(seed, iteration)
    envs, memory, flags, played = _collect(learning, env_step, learnt.arrays, envs, noise)
    learnt, batch, measured = learning.targets(learnt, memory, flags, seed, iteration)
    learnt, losses = learning.update(learnt, batch, seed, iteration, hyperparameters["learning_rate"])
    return learnt, envs, played, {**losses, **measured}


def _collect(
    learning: Learning, env_step: EnvStep, arrays: Tree, envs: Envs, noise: jax.Array
) -> tuple[Envs, Tree, Tree, Played]:
    """Run a rollout of `num_steps` steps, and the policy on its final observations.

    `arrays` are the policy's.
    """
    bounds, across = learning.problem.action_bounds, learning.computation.ops.across

    def step(carried: tuple[Envs, Tree], t: jax.Array) -> tuple[tuple[Envs, Tree], Any]:
        envs, memory = carried
        memory, carry, actions = learning.act(arrays, memory, envs.carry, noise, t, _seen(learning, envs))
        state, given = env_step(envs.state, bounds.within(jnp, actions) if bounds else actions)
        with jax.enable_x64(True):  # statistics are float64
            stood, reward, flags = after_step(jnp, learning.problem, envs.arrays, given, across)
        return (Envs(state, stood, carry), memory), (reward, given.raw_reward, _packed(flags))

    memory = learning.remember(learning.allocate(), envs.carry)
    steps = jnp.arange(learning.ppo.num_steps, dtype=jnp.int32)
    unroll = learning.steps_at_once
    (envs, memory), (rewards, raw_rewards, packed) = jax.lax.scan(step, (envs, memory), steps, unroll=unroll)
    flags = {"rewards": rewards, **_unpacked(packed)}
    last = jnp.int32(learning.ppo.num_steps)
    memory, _, _ = learning.act(arrays, memory, envs.carry, noise, last, _seen(learning, envs))
    envs = envs._replace(carry=learning.carried(memory, envs.carry))
    return envs, memory, flags, Played(raw_rewards.T, flags["episode_over"].T, flags["valid"].T)


def _packed(flags: Tree) -> jax.Array:
    """Flags `[N]` bool, in the order of `STEP_FLAGS`, as the bits of one array: a GPU stores it by one kernel."""
    bits = (flags[name].astype(jnp.uint8) << k for k, name in enumerate(STEP_FLAGS))
    return functools.reduce(jnp.bitwise_or, bits)


def _unpacked(packed: jax.Array) -> Tree:
    return {name: (packed & (1 << k)).astype(bool) for k, name in enumerate(STEP_FLAGS)}


def warmed(
    learning: Learning, env_step: EnvStep, learnt: TrainState, envs: Envs, seed: jax.Array, iterations: jax.Array
) -> tuple[TrainState, Envs]:
    """State after K warm-up rollouts, which update only statistics; `iterations [K]` are the keys of their noise."""

    def rollout(carried: tuple[TrainState, Envs], iteration: jax.Array) -> tuple[tuple[TrainState, Envs], None]:
        learnt, envs = carried
        noise = learning.action_noise(seed, iteration)
        envs, memory, flags, _ = _collect(learning, env_step, learnt.arrays, envs, noise)
        return (learning.warmed(learnt, memory, flags), envs), None

    return jax.lax.scan(rollout, (learnt, envs), iterations)[0]


def _seen(learning: Learning, envs: Envs) -> Seen:
    """Inputs of the policy for the next step; `start` is present only for a recurrent network."""
    start = envs.arrays["envs.start"] if learning.network.carry else None
    return Seen(envs.arrays["envs.obs"], legal=envs.arrays.get("envs.legal"), start=start)
