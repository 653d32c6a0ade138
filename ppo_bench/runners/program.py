"""PPO iterations with environments that are part of a JAX program: collect, targets, update in one compiled call."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.runners.env_steps import STEP_FLAGS, after_step
from ppo_bench.runners.jax_functions import JaxFunctions, TrainState
from ppo_bench.runners.jax_mesh import REPLICATED, sharded_along


class ProgramEnvs(NamedTuple):
    """State of the environments, on the device."""

    state: Any
    """State that the environment's own step function takes and returns."""
    arrays: Tree
    """The arrays of `normalization_array_specs` and `env_array_specs`, except episode returns and lengths, which the
    host computes."""
    carry: Tree
    """Carry (recurrent state) of the network, `[N, ...]`."""


class RolloutRewards(NamedTuple):
    """Arrays from which the host computes episode returns and lengths, `[N, T]`: rewards float32, flags bool."""

    raw_rewards: jax.Array
    episode_over: jax.Array
    value_mask: jax.Array
    """Flag that is false where a step only reset its environment."""


def env_sharding_specs(envs: ProgramEnvs) -> Any:
    """Sharding specs of `envs`: environments in equal parts, running statistics replicated."""
    arrays = {name: REPLICATED if name.startswith("normalize.") else sharded_along(0) for name in envs.arrays}
    return ProgramEnvs(sharded_along(0), arrays, sharded_along(0))  # type: ignore[arg-type]


def iterate(
    functions: JaxFunctions,
    train_state: TrainState,
    envs: ProgramEnvs,
    seed: jax.Array,
    hyperparameters: Tree,
    iteration: jax.Array,
) -> tuple[TrainState, ProgramEnvs, RolloutRewards, Tree]:
    """Run an iteration; the returned metrics are all but `learning_rate` and `masked_fraction`.

    `seed` and `iteration`, which counts from 1, are scalars. `hyperparameters` are those that are arguments of the
    program: the values of a grid, and `scheduled_learning_rate`, that of this iteration.
    """
    values = dict(hyperparameters)
    learning_rate = values.pop("scheduled_learning_rate")
    functions = functions.with_hyperparameters(values)
    noise = functions.action_noise(seed, iteration)
    envs, buffer, flags, rollout_rewards = _collect(functions, train_state.arrays, envs, noise)
    train_state, batch, measured = functions.targets(train_state, buffer, flags, seed, iteration)
    train_state, losses = functions.update(train_state, batch, seed, iteration, learning_rate)
    return train_state, envs, rollout_rewards, {**losses, **measured}


def _collect(
    functions: JaxFunctions, arrays: Tree, envs: ProgramEnvs, noise: jax.Array
) -> tuple[ProgramEnvs, Tree, Tree, RolloutRewards]:
    """Run a rollout of `num_steps` steps, and the policy on its final observations.

    `arrays` are the policy's.
    """
    env: Any = functions.spec.env
    bounds, all_reduce_moments = functions.spec.action_bounds, functions.update_functions.ops.all_reduce_moments

    def step(state: tuple[ProgramEnvs, Tree], t: jax.Array) -> tuple[tuple[ProgramEnvs, Tree], Any]:
        envs, buffer = state
        buffer, carry, actions = functions.act(arrays, buffer, envs.carry, noise, t, _policy_input(functions, envs))
        env_state, outcome = env.step(envs.state, bounds.to_env_actions(jnp, actions) if bounds else actions)
        with jax.enable_x64(True):  # statistics are float64
            env_arrays, reward, flags = after_step(jnp, functions.spec, envs.arrays, outcome, all_reduce_moments)
        return (ProgramEnvs(env_state, env_arrays, carry), buffer), (reward, outcome.raw_reward, _pack_flags(flags))

    buffer = functions.store_initial_carry(functions.allocate(), envs.carry)
    steps = jnp.arange(functions.ppo.num_steps, dtype=jnp.int32)
    unroll = functions.rollout_unroll
    (envs, buffer), (rewards, raw_rewards, packed) = jax.lax.scan(step, (envs, buffer), steps, unroll=unroll)
    flags = {"rewards": rewards, **_unpack_flags(packed)}
    last = jnp.int32(functions.ppo.num_steps)
    buffer, _, _ = functions.act(arrays, buffer, envs.carry, noise, last, _policy_input(functions, envs))
    envs = envs._replace(carry=functions.carry_after_rollout(buffer, envs.carry))
    return envs, buffer, flags, RolloutRewards(raw_rewards.T, flags["episode_over"].T, flags["value_mask"].T)


def _pack_flags(flags: Tree) -> jax.Array:
    """Flags `[N]` bool, in the order of `STEP_FLAGS`, as the bits of one array: a GPU stores it by one kernel."""
    bits = (flags[name].astype(jnp.uint8) << k for k, name in enumerate(STEP_FLAGS))
    return functools.reduce(jnp.bitwise_or, bits)


def _unpack_flags(packed: jax.Array) -> Tree:
    return {name: (packed & (1 << k)).astype(bool) for k, name in enumerate(STEP_FLAGS)}


def run_warmup(
    functions: JaxFunctions,
    train_state: TrainState,
    envs: ProgramEnvs,
    seed: jax.Array,
    iterations: jax.Array,
) -> tuple[TrainState, ProgramEnvs]:
    """State after K warm-up rollouts, which update only statistics; `iterations [K]` are the keys of their noise."""

    def rollout(
        state: tuple[TrainState, ProgramEnvs], iteration: jax.Array
    ) -> tuple[tuple[TrainState, ProgramEnvs], None]:
        train_state, envs = state
        noise = functions.action_noise(seed, iteration)
        envs, buffer, flags, _ = _collect(functions, train_state.arrays, envs, noise)
        return (functions.warmup(train_state, buffer, flags), envs), None

    return jax.lax.scan(rollout, (train_state, envs), iterations)[0]


def _policy_input(functions: JaxFunctions, envs: ProgramEnvs) -> PolicyInput:
    """Inputs of the policy for the next step; `episode_start` is present only for a recurrent network."""
    arrays = envs.arrays
    episode_start = arrays["envs.episode_start"] if functions.network.carry else None
    return PolicyInput(arrays["envs.obs"], action_mask=arrays.get("envs.action_mask"), episode_start=episode_start)
