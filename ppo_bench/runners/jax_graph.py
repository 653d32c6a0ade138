"""PPO executed by JAX, with environments that are part of the program: a whole iteration is one compiled call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
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
from ppo_bench.runners.jax_learning import Learner, Learning, Storage, act, action_noise, allocate, update
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


class Flags(NamedTuple):
    """What is learnt from, `[N]` a step and `[T, N]` an iteration: rewards float32, flags bool."""

    rewards: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    real: jax.Array
    """False where a step only reset its environment."""


class Played(NamedTuple):
    """What episodes are told from, `[T, N]`: rewards float32, flags bool."""

    raw_rewards: jax.Array
    episode_over: jax.Array
    real: jax.Array
    """As in `Flags`."""


MOST_AHEAD = 8
"""Iterations that the device has at a time. JAX makes who gives it more than 32 programs wait for the first."""

Iterate = Callable[..., tuple[Learner, GraphEnvs, Played, dict[str, jax.Array]]]
"""See `iterate`."""


class Ahead(NamedTuple):
    """An iteration that the device was given, and what will come of it there; see `iterate`."""

    learning_rate: float
    played: Played
    measured: dict[str, jax.Array]


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
    """The compiled iteration of these environments; others may need another."""
    ahead: list[Ahead] = field(default_factory=list)
    """Iterations that `step` has yet to return; learner and environments stand after them."""


class JaxGraphRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, problem: Problem, env: GraphEnv, iterations_per_call: int) -> None:
        self.learning = Learning(problem)
        self._env = env
        self._ppo = problem.ppo
        self._num_iterations = problem.num_iterations
        self._at_once = iterations_per_call
        self.execution = self.learning.execution
        self._compiled: dict[EnvStep, Iterate] = {}
        self.given: Any = None
        """What will come of the last iteration that the device was given: all ready once that is over."""

    def step(self, state: GraphState) -> tuple[GraphState, Metrics, list[Episode]]:
        """See `Runner.step`."""
        self._run_ahead(state)
        state.iteration += 1
        learning_rate, played, measured = state.ahead.pop(0)
        played, measured = jax.device_get((played, measured))  # waits for this iteration; the device goes on
        state.totals, metrics, episodes = reported(learning_rate, played, measured, state.totals)
        return state, metrics, episodes

    def _run_ahead(self, state: GraphState) -> None:
        """Give the device the next iterations; it runs them as this process goes on."""
        with jax.default_device(self.learning.device):
            for learning_rate, *told in self.upcoming(state.iteration, len(state.ahead)):
                seed = np.int32(state.seed)
                state.learner, state.envs, played, measured = state.iterate(state.learner, state.envs, seed, *told)
                state.ahead.append(Ahead(learning_rate, played, measured))
                self.given = played, measured

    def upcoming(self, iteration: int, ahead: int = 0) -> Iterator[tuple[float, np.ndarray, np.ndarray]]:
        """Of each iteration that the device is to be given where `iteration` have been returned and as many as `ahead`
        after that have been given: its learning rate, and its number and that rate as `iterate` takes them."""
        block_ends = (iteration // self._at_once + 1) * self._at_once
        last = max(iteration + 1, min(block_ends, iteration + MOST_AHEAD, self._num_iterations))
        for k in range(iteration + ahead + 1, last + 1):
            learning_rate = self.learning.learning_rate(k)
            yield learning_rate, np.array(k, np.int32), np.array(learning_rate, self.learning.dtype)

    def init(self, seed: int) -> GraphState:
        """See `Runner.init`."""
        return self._fresh(seed, 0, self.learning.init(seed), initial_statistics(self._obs_shape))

    def export(self, state: GraphState) -> Arrays:
        """See `Runner.export`. Only where no iteration is ahead."""
        assert not state.ahead, "the device has run ahead of the iteration that is to be exported"
        learnt = Learning.export(state.learner, state.seed, state.iteration)
        return learnt | export_statistics(*jax.tree.map(np.array, _statistics(state.envs)))

    def restore(self, arrays: Arrays, carried: bool = False) -> GraphState:
        """See `Runner.restore`."""
        if carried:
            raise ConfigError("environments that are part of a program cannot replay a recording: use another backend")
        return self._fresh(*self.learning.restore(arrays), restore_statistics(arrays, self._obs_shape))

    def restart(self, state: GraphState, iteration: int) -> GraphState:
        """See `Runner.restart`. Only where no iteration is ahead."""
        assert not state.ahead, "the device has run ahead of the iteration after which environments are to restart"
        fresh = self._fresh(state.seed, iteration, state.learner, _statistics(state.envs))
        fresh.iteration = state.iteration
        return fresh

    def close(self) -> None:
        """See `Runner.close`."""
        try:
            jax.block_until_ready(self.given)  # environments are not to go while a program steps them
        finally:
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
    learning_rate: float, played: Played, measured: Mapping[str, jax.Array], totals: Totals
) -> tuple[Totals, Metrics, list[Episode]]:
    """What an iteration gave, once it has come from the device; `totals` are carried from the one before."""
    totals, episodes = fold_episodes(totals, *map(np.asarray, played))
    metrics = Metrics(
        learning_rate=learning_rate,
        masked_fraction=1.0 - float(np.mean(played.real)),
        **{name: float(value) for name, value in measured.items()},
    )
    return totals, metrics, episodes


# --- The compiled program ---------------------------------------------------------------------------------------------


def iterate(
    env_step: EnvStep,
    bounds: tuple[np.ndarray, np.ndarray] | None,
    learning: Learning,
    learner: Learner,
    envs: GraphEnvs,
    seed: jax.Array,
    iteration: jax.Array,
    learning_rate: jax.Array,
) -> tuple[Learner, GraphEnvs, Played, dict[str, jax.Array]]:
    """An iteration: a rollout, advantages and an update. `iteration` counts from 1; `bounds` are those of continuous
    actions."""
    network, layers, hp = learning.network, learning.layers, learning.ppo
    noise_of_step = action_noise(network, hp, learning.dtype, seed, iteration)
    envs, storage, flags, played = _collect(env_step, bounds, learning, learner.params, noise_of_step, envs)
    learner, measured = update(
        network, layers, hp, learning.optimizer, learner, storage, flags, seed, iteration, learning_rate
    )
    return learner, envs, played, measured


def _collect(
    env_step: EnvStep,
    bounds: tuple[np.ndarray, np.ndarray] | None,
    learning: Learning,
    params: networks.Params,
    noise_of_step: jax.Array,
    envs: GraphEnvs,
) -> tuple[GraphEnvs, Storage, Flags, Played]:
    """`num_steps` steps, and the value of the observations after them."""
    network, layers, hp = learning.network, learning.layers, learning.ppo

    def step(carry: tuple[GraphEnvs, Storage], t: jax.Array) -> tuple[tuple[GraphEnvs, Storage], Any]:
        envs, storage = carry
        storage, actions = act(network, layers, params, storage, noise_of_step, t, envs.obs)
        env, seen = env_step(envs.env, actions if bounds is None else jnp.clip(actions, *bounds))
        envs, flags = _take_in(network, hp, envs._replace(env=env), seen)
        return (envs, storage), (flags, seen.raw_reward, seen.episode_over)

    storage = allocate(network, hp, learning.dtype)
    steps = jnp.arange(hp.num_steps, dtype=jnp.int32)
    (envs, storage), (flags, raw_rewards, episode_over) = jax.lax.scan(step, (envs, storage), steps)
    storage, _ = act(network, layers, params, storage, noise_of_step, jnp.int32(hp.num_steps), envs.obs)
    return envs, storage, flags, Played(raw_rewards, episode_over, flags.real)


def _take_in(network: NetworkSpec, hp: Hyperparameters, envs: GraphEnvs, seen: Any) -> tuple[GraphEnvs, Flags]:
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
    flags = Flags(rewards, seen.terminated, seen.truncated, real)
    return GraphEnvs(envs.env, obs, done, returns, obs_stats, return_stats), flags


def _observe(
    network: NetworkSpec, hp: Hyperparameters, stats: normalize.RunningStats, raw: jax.Array, mask: jax.Array
) -> tuple[normalize.RunningStats, jax.Array]:
    """New observations as the network takes them; the statistics learn those on which the policy will act."""
    if hp.norm_obs:
        stats, raw = normalize.observe(jnp, stats, raw.astype(jnp.float64), mask, hp.obs_clip)
    return stats, network.arrange(raw)  # type: ignore[arg-type, return-value]
