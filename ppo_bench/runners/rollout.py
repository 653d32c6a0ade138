"""Stepping host environments for one iteration; the same for every framework whose environments live outside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ppo_bench import noise, normalize
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.errors import ConfigError, Failed
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.runners import plain_numpy
from ppo_bench.runners.base import Arrays, Episode, Hyperparameters, fitting
from ppo_bench.runners.episodes import Totals, fold_episodes, no_totals

Act = Callable[[int, np.ndarray], np.ndarray]
"""`(t, observations [N, ...] as the network takes them) -> actions [N] or [N, A]` on the host."""


CARRY = ("obs", "done", "returns", "lengths", "discounted_returns")
"""What of a `RolloutState` belongs to the environments, as `export` names it."""


@dataclass
class RolloutState:
    """Where the environments stand between two iterations."""

    obs: np.ndarray
    """`[N, ...]` as the network takes them; valid until the next step."""
    done: np.ndarray
    """`[N]` bool: the next step only resets this environment."""
    totals: Totals
    discounted_returns: np.ndarray
    """`[N]` float64, for reward normalisation."""
    obs_stats: normalize.RunningStats
    return_stats: normalize.RunningStats


class Rollout(NamedTuple):
    """What the environments gave in one iteration, `[T, N]` each: rewards float32, flags bool."""

    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    real: np.ndarray
    """False where a step only reset its environment."""
    episodes: list[Episode]


Statistics = tuple[normalize.RunningStats, normalize.RunningStats]
"""Of observations and of discounted returns, float64."""


def initial_statistics(shape: tuple[int, ...]) -> Statistics:
    """Before anything is seen; observations have `shape`."""

    def blank(shape: tuple[int, ...]) -> normalize.RunningStats:
        return normalize.RunningStats(np.zeros(shape), np.ones(shape), np.float64(normalize.INITIAL_COUNT))

    return blank(shape), blank(())


def export_statistics(*statistics: normalize.RunningStats) -> Arrays:
    """`Statistics` by name."""
    return {
        f"normalize.{name}.{field}": np.asarray(value)
        for name, stats in zip(("obs", "return"), statistics, strict=True)
        for field, value in zip(normalize.RunningStats._fields, stats, strict=True)
    }


def restore_statistics(arrays: Arrays, shape: tuple[int, ...]) -> Statistics:
    """What `export_statistics` gave; observations have `shape`. Raises `ConfigError` if it does not fit."""

    def stats(name: str, shape: tuple[int, ...]) -> normalize.RunningStats:
        shapes = {"mean": shape, "var": shape, "count": ()}
        return normalize.RunningStats(**{k: fitting(arrays, f"normalize.{name}.{k}", s) for k, s in shapes.items()})

    return stats("obs", shape), stats("return", ())


def _not_finite(what: str, values: np.ndarray) -> Failed:
    """An error that names the environment whose values `[N, ...]` are not finite."""
    env = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(1))[0])
    return Failed(f"environment {env} gave {what} that is not a finite number; the last checkpoint is kept")


class HostEnvs:
    """A `VectorEnv` with the normalisation and bookkeeping that PPO needs around it."""

    def __init__(self, env: VectorEnv | GraphEnv, network: NetworkSpec, ppo: Hyperparameters) -> None:
        if isinstance(env, GraphEnv):
            raise ConfigError("these environments are part of a JAX program: use framework=jax_xla")
        self._env = env
        self._network = network
        self._ppo = ppo
        box = not network.discrete
        self._floats = env.observation_space.dtype is not None and env.observation_space.dtype.kind == "f"
        self._action_bounds = (env.action_space.low, env.action_space.high) if box else None

    def start(self, seed: int, iteration: int) -> RolloutState:
        """Fresh environments and statistics."""
        return self._fresh(seed, iteration, *initial_statistics(self._env.observation_space.shape))

    def restart(self, state: RolloutState, seed: int, iteration: int) -> RolloutState:
        """Fresh environments; normalisation statistics are kept."""
        return self._fresh(seed, iteration, state.obs_stats, state.return_stats)

    def restore(self, arrays: Arrays, seed: int, iteration: int, carried: bool = False) -> RolloutState:
        """Fresh environments, with the statistics that `export` gave; `carried` ones stand where it left them."""
        statistics = restore_statistics(arrays, self._env.observation_space.shape)
        if not carried:
            return self._fresh(seed, iteration, *statistics)
        rows = (self._ppo.num_envs,)
        obs, done, returns, lengths, discounted_returns = (
            fitting(arrays, f"envs.{name}", rows + (self._network.input_shape if name == "obs" else ()))
            for name in CARRY
        )
        return RolloutState(obs, done, Totals(returns, lengths), discounted_returns, *statistics)

    @staticmethod
    def export(state: RolloutState) -> Arrays:
        """The normalisation statistics and where the environments stand, by name."""
        carry = (state.obs, state.done, state.totals.returns, state.totals.lengths, state.discounted_returns)
        envs = {f"envs.{name}": np.array(value) for name, value in zip(CARRY, carry, strict=True)}
        return envs | export_statistics(state.obs_stats, state.return_stats)

    def _fresh(
        self, seed: int, iteration: int, obs_stats: normalize.RunningStats, return_stats: normalize.RunningStats
    ) -> RolloutState:
        num_envs = self._ppo.num_envs
        raw = self._env.reset(noise.env_seeds(seed, iteration, num_envs))
        state = RolloutState(
            obs=raw,
            done=np.zeros(num_envs, bool),
            totals=no_totals(num_envs),
            discounted_returns=np.zeros(num_envs),
            obs_stats=obs_stats,
            return_stats=return_stats,
        )
        state.obs = self._observe(state, raw)
        return state

    def collect(self, state: RolloutState, act: Act) -> tuple[RolloutState, Rollout]:
        """`num_steps` steps, each with the actions that `act` returns for the observations before it."""
        shape = (self._ppo.num_steps, self._ppo.num_envs)
        rewards, raw_rewards = np.empty(shape, np.float32), np.empty(shape, np.float32)
        terminated, truncated, episode_over, done = (np.empty(shape, bool) for _ in range(4))
        before = state.done
        for t in range(self._ppo.num_steps):
            actions = act(t, state.obs)
            if self._action_bounds:
                actions = plain_numpy.clip(actions, *self._action_bounds)
            step = self._env.step(actions)
            terminated[t], truncated[t], episode_over[t] = step.terminated, step.truncated, step.episode_over
            rewards[t], raw_rewards[t] = step.reward, step.raw_reward
            done[t] = state.done = step.terminated | step.truncated
            if self._floats and not plain_numpy.all_finite(step.obs):
                raise _not_finite("an observation", step.obs)
            state.obs = self._observe(state, step.obs)
        if not np.isfinite(raw_rewards).all():
            raise _not_finite("a reward", raw_rewards.T)
        real = ~np.concatenate([before[None], done[:-1]])
        if self._ppo.norm_reward:
            rewards = self._normalized_rewards(state, rewards, real)
        state.totals, episodes = fold_episodes(state.totals, raw_rewards, episode_over, real)
        return state, Rollout(rewards, terminated, truncated, real, episodes)

    def _observe(self, state: RolloutState, raw: np.ndarray) -> np.ndarray:
        """New observations as the network takes them; the statistics learn those on which the policy will act."""
        if self._ppo.norm_obs:
            mask, raw = 1.0 - state.done, raw.astype(np.float64, copy=False)
            state.obs_stats, raw = normalize.observe(plain_numpy, state.obs_stats, raw, mask, self._ppo.obs_clip)
        return self._network.arrange(raw)

    def _normalized_rewards(self, state: RolloutState, rewards: np.ndarray, real: np.ndarray) -> np.ndarray:
        """What `normalize.reward` would give step by step; `[T, N]` float32.

        Nobody waits for them, so that what depends on the step before is little enough for plain numbers.
        """
        mask, history = real.astype(np.float64), np.empty(rewards.shape)
        returns = state.discounted_returns
        for t in range(len(rewards)):
            history[t] = returns = normalize.discounted_returns(np, returns, rewards[t], mask[t], self._ppo.gamma)
        stats = normalize.RunningStats(*map(float, state.return_stats))
        variances = np.empty((len(rewards), 1))
        steps = zip(*(x.tolist() for x in normalize.moments(np, history.T, mask.T)), strict=True)
        for t, moments in enumerate(steps):
            stats = normalize.merge(stats, normalize.Moments(*moments))
            variances[t] = stats.var
        state.discounted_returns, state.return_stats = returns, stats
        at_each_step = stats._replace(var=variances)
        return normalize.normalize_rewards(np, at_each_step, rewards, self._ppo.reward_clip).astype(np.float32)

    def close(self) -> None:
        """Close the environments."""
        self._env.close()
