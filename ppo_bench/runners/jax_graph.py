"""PPO executed by JAX, with environments that are part of the program: a whole iteration is one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppo_bench import noise, normalize
from ppo_bench.envs.base import GraphEnv, Step
from ppo_bench.errors import ConfigError
from ppo_bench.networks import jax as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.runners.base import Arrays, Episode, Hyperparameters, Metrics, Problem
from ppo_bench.runners.episodes import Totals, fold_episodes, no_totals
from ppo_bench.runners.jax_learning import MEASURED, Learner, Learning, Storage, act, action_noise, allocate, update
from ppo_bench.runners.rollout import Statistics, export_statistics, initial_statistics, restore_statistics

EnvStep = Callable[[Any, Any], tuple[Any, Step]]
"""See `ppo_bench.envs.base.Start.step`."""


class GraphEnvs(NamedTuple):
    """Where the environments stand, on the device."""

    env: Any
    """The environments' own state."""
    obs: jax.Array
    """`[N, ...]` as the network takes them."""
    done: jax.Array
    """`[N]` bool: the next step only resets this environment."""
    discounted_returns: jax.Array
    """`[N]` float64, for reward normalisation."""
    obs_stats: normalize.RunningStats
    return_stats: normalize.RunningStats


class Outcome(NamedTuple):
    """What the environments gave, `[N]` a step and `[T, N]` an iteration: rewards float32, flags bool."""

    rewards: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    real: jax.Array
    """False where a step only reset its environment."""
    raw_rewards: jax.Array
    episode_over: jax.Array


Iterate = Callable[..., tuple[Learner, GraphEnvs, Outcome, dict[str, jax.Array]]]
"""See `iterate`."""


@dataclass
class GraphState:
    """Everything that changes from one iteration to the next."""

    seed: int
    iteration: int
    """Iterations done."""
    learner: Learner
    envs: GraphEnvs
    totals: Totals
    iterate: Iterate
    """The compiled iterations of these environments; others may need another."""
    ahead: list[tuple[Metrics, list[Episode]]] = field(default_factory=list)
    """What iterations gave that the program has run and `step` has not returned yet; learner, environments and totals
    stand after them."""


class JaxGraphRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, problem: Problem, env: GraphEnv, iterations_per_call: int) -> None:
        self.learning = Learning(problem)
        self._env = env
        self._ppo = problem.ppo
        self._num_iterations = problem.num_iterations
        self._iterations_per_call = iterations_per_call
        self.execution = self.learning.execution
        self._compiled: dict[EnvStep, Iterate] = {}

    def step(self, state: GraphState) -> tuple[GraphState, Metrics, list[Episode]]:
        """See `Runner.step`."""
        if not state.ahead:
            self._call(state)
        state.iteration += 1
        metrics, episodes = state.ahead.pop(0)
        return state, metrics, episodes

    def _call(self, state: GraphState) -> None:
        """Run the next `iterations_per_call` iterations, or those that are left."""
        rates, counters = self.next_call(state.iteration)
        with jax.default_device(self.learning.device):
            state.learner, state.envs, *on_device = state.iterate(
                state.learner, state.envs, np.int32(state.seed), *counters
            )
        outcomes, measured = jax.device_get(on_device)
        state.totals, state.ahead = reported(outcomes, measured, rates, state.totals)

    def next_call(self, iteration: int) -> tuple[list[float], tuple[np.ndarray, ...]]:
        """Learning rates of the iterations that the call after `iteration` runs; what `iterate` is told of them."""
        most = self._iterations_per_call
        count = max(1, min(most, self._num_iterations - iteration))
        rates = [self.learning.learning_rate(iteration + k) for k in range(1, count + 1)]
        padded = np.array(rates + [0.0] * (most - count), self.learning.dtype)
        return rates, (np.array(iteration + 1, np.int32), np.array(count, np.int32), padded)

    def init(self, seed: int) -> GraphState:
        """See `Runner.init`."""
        return self._fresh(seed, 0, self.learning.init(seed), initial_statistics(self._obs_shape))

    def export(self, state: GraphState) -> Arrays:
        """See `Runner.export`. Between two calls of the program only."""
        assert not state.ahead, "the program has run ahead of the iteration that is to be exported"
        learnt = Learning.export(state.learner, state.seed, state.iteration)
        return learnt | export_statistics(*jax.tree.map(np.array, _statistics(state.envs)))

    def restore(self, arrays: Arrays, carried: bool = False) -> GraphState:
        """See `Runner.restore`."""
        if carried:
            raise ConfigError("environments that are part of a program cannot replay a recording: use another backend")
        return self._fresh(*self.learning.restore(arrays), restore_statistics(arrays, self._obs_shape))

    def restart(self, state: GraphState, iteration: int) -> GraphState:
        """See `Runner.restart`."""
        fresh = self._fresh(state.seed, iteration, state.learner, _statistics(state.envs))
        fresh.iteration = state.iteration
        return fresh

    def close(self) -> None:
        """See `Runner.close`."""
        self._env.close()

    @property
    def _obs_shape(self) -> tuple[int, ...]:
        return self._env.observation_space.shape

    def _fresh(self, seed: int, iteration: int, learner: Learner, statistics: Statistics) -> GraphState:
        """Fresh environments, whose statistics have seen their first observations."""
        num_envs = self._ppo.num_envs
        with jax.default_device(self.learning.device), jax.enable_x64(True):
            start = self._env.reset(noise.env_seeds(seed, iteration, num_envs))
            obs_stats, return_stats = jax.tree.map(jnp.array, statistics)  # copies: a program may reuse their memory
            obs_stats, obs = _observe(self.learning.network, self._ppo, obs_stats, start.obs, jnp.ones(num_envs))
            done, returns = jnp.zeros(num_envs, bool), jnp.zeros(num_envs)
            envs = GraphEnvs(start.state, obs, done, returns, obs_stats, return_stats)
            envs = jax.device_put(envs, self.learning.device)  # tied to it, as what the program returns
        return GraphState(seed, iteration, learner, envs, no_totals(num_envs), self._iterate(start.step))

    def _iterate(self, env_step: EnvStep) -> Iterate:
        """The compiled iteration of environments that step by `env_step`; compiled anew only if that is another."""
        if env_step not in self._compiled:
            space = self._env.action_space
            bounds = None if self.learning.network.discrete else (space.low, space.high)
            program = jax.jit(functools.partial(iterate, env_step, bounds, self.learning), donate_argnums=(0, 1))
            self._compiled[env_step] = program
        return self._compiled[env_step]


def _statistics(envs: GraphEnvs) -> Statistics:
    return envs.obs_stats, envs.return_stats


def reported(
    outcomes: Outcome, measured: Mapping[str, np.ndarray], learning_rates: Sequence[float], totals: Totals
) -> tuple[Totals, list[tuple[Metrics, list[Episode]]]]:
    """What the K iterations of a call gave, from what `iterate` returned; `totals` are carried through them."""
    reports = []
    for k, learning_rate in enumerate(learning_rates):
        outcome = Outcome(*(array[k] for array in outcomes))
        played = (np.asarray(x) for x in (outcome.raw_rewards, outcome.episode_over, outcome.real))
        totals, episodes = fold_episodes(totals, *played)
        metrics = Metrics(
            learning_rate=learning_rate,
            masked_fraction=1.0 - float(np.mean(outcome.real)),
            **{name: float(values[k]) for name, values in measured.items()},
        )
        reports.append((metrics, episodes))
    return totals, reports


# --- The compiled program ---------------------------------------------------------------------------------------------


def iterate(
    env_step: EnvStep,
    bounds: tuple[np.ndarray, np.ndarray] | None,
    learning: Learning,
    learner: Learner,
    envs: GraphEnvs,
    seed: jax.Array,
    first: jax.Array,
    count: jax.Array,
    learning_rates: jax.Array,
) -> tuple[Learner, GraphEnvs, Outcome, dict[str, jax.Array]]:
    """`count` iterations one after the other, each a rollout, advantages and an update.

    `bounds` are those of continuous actions; the iterations are number `first` (from 1) and those that follow. They are
    at most as many as `learning_rates [K]`: the last call of a run may have fewer than the others and is the same
    program. Outcomes are `[K, T, N]`, measurements `[K]`, the first `count` of each.
    """
    network, layers, hp, dtype = learning.network, learning.layers, learning.ppo, learning.dtype

    def one(k: jax.Array, carry: tuple[Learner, GraphEnvs, Any]) -> tuple[Learner, GraphEnvs, Any]:
        learner, envs, gave = carry
        iteration = first + k
        noise_of_step = action_noise(network, hp, dtype, seed, iteration)
        envs, storage, outcome = _collect(env_step, bounds, learning, learner.params, noise_of_step, envs)
        flags = (outcome.rewards, outcome.terminated, outcome.truncated, outcome.real)
        learner, measured = update(
            network, layers, hp, learning.optimizer, learner, storage, flags, seed, iteration, learning_rates[k]
        )
        return learner, envs, jax.tree.map(lambda rows, row: rows.at[k].set(row), gave, (outcome, measured))

    rows = (len(learning_rates), hp.num_steps, hp.num_envs)
    kinds = {"rewards": jnp.float32, "raw_rewards": jnp.float32}
    outcomes = Outcome(*(jnp.zeros(rows, kinds.get(name, jnp.bool)) for name in Outcome._fields))
    measured = {name: jnp.zeros(len(learning_rates), dtype) for name in MEASURED}
    learner, envs, (outcomes, measured) = jax.lax.fori_loop(0, count, one, (learner, envs, (outcomes, measured)))
    return learner, envs, outcomes, measured


def _collect(
    env_step: EnvStep,
    bounds: tuple[np.ndarray, np.ndarray] | None,
    learning: Learning,
    params: networks.Params,
    noise_of_step: jax.Array,
    envs: GraphEnvs,
) -> tuple[GraphEnvs, Storage, Outcome]:
    """`num_steps` steps, and the value of the observations after them."""
    network, layers, hp = learning.network, learning.layers, learning.ppo

    def step(carry: tuple[GraphEnvs, Storage], t: jax.Array) -> tuple[tuple[GraphEnvs, Storage], Outcome]:
        envs, storage = carry
        storage, actions = act(network, layers, params, storage, noise_of_step, t, envs.obs)
        env, seen = env_step(envs.env, actions if bounds is None else jnp.clip(actions, *bounds))
        envs, outcome = _take_in(network, hp, envs._replace(env=env), seen)
        return (envs, storage), outcome

    storage = allocate(network, hp, learning.dtype)
    (envs, storage), outcome = jax.lax.scan(step, (envs, storage), jnp.arange(hp.num_steps, dtype=jnp.int32))
    storage, _ = act(network, layers, params, storage, noise_of_step, jnp.int32(hp.num_steps), envs.obs)
    return envs, storage, outcome


def _take_in(network: NetworkSpec, hp: Hyperparameters, envs: GraphEnvs, seen: Any) -> tuple[GraphEnvs, Outcome]:
    """The environments after a step in which they gave `seen`, with what is kept of it."""
    real = ~envs.done
    rewards, returns, return_stats = seen.reward, envs.discounted_returns, envs.return_stats
    with jax.enable_x64(True):  # statistics are of float64, as on the host
        if hp.norm_reward:
            return_stats, returns, rewards = normalize.reward(
                jnp, return_stats, returns, rewards, real.astype(jnp.float64), hp.gamma, hp.reward_clip
            )
        done = seen.terminated | seen.truncated
        obs_stats, obs = _observe(network, hp, envs.obs_stats, seen.obs, (~done).astype(jnp.float64))
        rewards = rewards.astype(jnp.float32)
    flags = (seen.terminated, seen.truncated, real, seen.raw_reward, seen.episode_over)
    return GraphEnvs(envs.env, obs, done, returns, obs_stats, return_stats), Outcome(rewards, *flags)


def _observe(
    network: NetworkSpec, hp: Hyperparameters, stats: normalize.RunningStats, raw: jax.Array, mask: jax.Array
) -> tuple[normalize.RunningStats, jax.Array]:
    """New observations as the network takes them; the statistics learn those on which the policy will act."""
    if hp.norm_obs:
        stats, raw = normalize.observe(jnp, stats, raw.astype(jnp.float64), mask, hp.obs_clip)
    return stats, network.arrange(raw)  # type: ignore[arg-type, return-value]
