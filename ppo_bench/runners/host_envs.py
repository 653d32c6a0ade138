"""Environments on the host, stepped one at a time, with normalisation and bookkeeping of their rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.envs.base import EnvStep, GraphEnv, PolicyInput
from ppo_bench.envs.float_range import FLOAT32_MAX, is_in_range, out_of_range
from ppo_bench.mathematics import normalize
from ppo_bench.mathematics.arrays import Arrays, default_arrays
from ppo_bench.mathematics.normalize import Moments
from ppo_bench.runners.array_specs import env_array_specs, normalization_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.episodes import EpisodeTotals, accumulate_episodes
from ppo_bench.runners.host import EnvRollout


class FastNumpy:
    """NumPy operations by direct calls of ufuncs, for the small arrays of every environment step.

    `np.sum` and `np.clip` spend most of their time in Python wrappers around the ufuncs (docs/performance.md). Results
    are bitwise equal.
    """

    square, sqrt = np.square, np.sqrt

    @staticmethod
    def sum(x: np.ndarray, axis: int | None = None) -> Any:
        """Same as `np.sum`."""
        return np.add.reduce(x, axis)

    @staticmethod
    def clip(x: np.ndarray, low: Any, high: Any) -> Any:
        """Same as `np.clip`; `high=None` means no upper bound."""
        x = np.maximum(x, low)
        return x if high is None else np.minimum(x, high)


class HostEnvs:
    """The environments of a training. Their state is a dictionary with the arrays of `env_array_specs` and
    `normalization_array_specs`."""

    def __init__(self, spec: TrainingSpec) -> None:
        if isinstance(spec.env, GraphEnv):
            raise ConfigError("these environments are stepped on the device, not on the host")
        self._env: Any = spec.env
        self._network, self._ppo = spec.network, spec.ppo
        self._num_envs, self._process_group = spec.num_envs, spec.process_group
        self._seeds, self._first, self._all_reduce_moments = spec.env_seeds, spec.first_env, spec.all_reduce_moments
        self._env_array_specs = env_array_specs(spec)
        self._statistics = normalization_array_specs(spec.env.observation_space.shape)
        self._all_act = np.ones(spec.num_envs, bool)
        space = spec.env.observation_space
        self._first_choices = np.cumsum([0, *spec.network.actions.choices[:-1]])
        self._floats = space.dtype is not None and space.dtype.kind == "f"
        self._action_bounds = spec.action_bounds

    # --- Between rollouts ---------------------------------------------------------------------------------------------

    def load(self, arrays: Arrays) -> Arrays:
        """The entries of `arrays` that are the state of the environments."""
        return {array.name: arrays[array.name] for array in (*self._env_array_specs, *self._statistics)}

    def reset(self, arrays: Arrays, seed: int, iteration: int) -> Arrays:
        """State after a reset of the environments by the key (seed, iteration); statistics are taken from `arrays`."""
        policy_input = self._env.reset(self._seeds(seed, iteration))
        state = self.load(arrays | default_arrays(self._env_array_specs))
        state |= {f"envs.{name}": array for name, array in policy_input._asdict().items() if array is not None}
        self._require_choice(policy_input.action_mask)
        self._require_range(policy_input.obs)
        state["envs.obs"] = self._observe(state, policy_input.obs)
        return state

    def _require_choice(self, action_mask: np.ndarray | None) -> None:
        """Raise `RunError` if `action_mask [N, A]` forbids all choices of an action's component in some environment."""
        if action_mask is None:
            return
        possible = np.logical_or.reduceat(action_mask, self._first_choices, axis=1).all(1)
        if not possible.all():
            env = self._first + int(np.flatnonzero(~possible)[0])
            raise RunError(f"environment {env} forbids every choice of an action")

    def _require_range(self, obs: np.ndarray) -> None:
        if not self._floats:
            return
        within = np.isfinite(obs) if obs.dtype.itemsize <= 4 else np.absolute(obs) <= FLOAT32_MAX
        if not np.logical_and.reduce(within, None):
            raise out_of_range("an observation", obs, self._first)

    def export(self, state: Arrays) -> Arrays:
        """Copies of the state's arrays, by name."""
        return {name: np.array(array) for name, array in state.items()}

    def close(self) -> None:
        """Close the environments."""
        self._env.close()

    # --- A rollout ----------------------------------------------------------------------------------------------------

    def policy_input(self, state: Arrays) -> PolicyInput:
        """Inputs of the policy for the next step."""
        action_mask = state.get("envs.action_mask")
        return PolicyInput(state["envs.obs"], state["envs.policy_mask"], action_mask, state["envs.episode_start"])

    def begin_rollout(self, state: Arrays) -> tuple[Arrays, Arrays]:
        """The same state, and arrays `[T, N]` for a rollout, with the flags before its first step filled in."""
        shape = (self._ppo.num_steps, self._num_envs)
        rollout: Arrays = {name: np.empty(shape, np.float32) for name in ("rewards", "raw_rewards")}
        rollout |= {name: np.empty(shape, bool) for name in ("terminated", "truncated", "episode_over")}
        # Flags of T + 1 observations: before each step and after the last.
        rollout |= {name: np.empty((shape[0] + 1, shape[1]), bool) for name in ("done", "policy_mask")}
        rollout["done"][0], rollout["policy_mask"][0] = state["envs.done"], state["envs.policy_mask"]
        rollout["episode_start"] = state["envs.episode_start"]
        return state, rollout

    def step(self, state: Arrays, rollout: Arrays, t: int, actions: np.ndarray) -> tuple[Arrays, Arrays]:
        """Step the environments, and write rewards and flags to row `t` of the rollout."""
        return self._store_step(state, rollout, t, self._env.step(self._to_env_actions(actions)))

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step, which `step_wait` ends."""
        self._env.step_async(self._to_env_actions(actions))

    def step_wait(self, state: Arrays, rollout: Arrays, t: int) -> tuple[Arrays, Arrays]:
        """See `step`."""
        return self._store_step(state, rollout, t, self._env.step_wait())

    def _to_env_actions(self, actions: np.ndarray) -> np.ndarray:
        return self._action_bounds.to_env_actions(FastNumpy, actions) if self._action_bounds else actions

    def _store_step(self, state: Arrays, rollout: Arrays, t: int, step: EnvStep) -> tuple[Arrays, Arrays]:
        self._store_episode_info(rollout, t, getattr(self._env, "episode_info", {}))
        rollout["rewards"][t], rollout["raw_rewards"][t] = step.reward, step.raw_reward
        rollout["terminated"][t], rollout["truncated"][t] = step.terminated, step.truncated
        rollout["episode_over"][t] = step.episode_over
        rollout["done"][t + 1] = done = step.terminated | step.truncated
        rollout["policy_mask"][t + 1] = state["envs.policy_mask"] = (
            self._all_act if step.policy_mask is None else step.policy_mask
        )
        if step.action_mask is not None:
            self._require_choice(step.action_mask)
            state["envs.action_mask"] = step.action_mask
        state["envs.episode_start"], state["envs.done"] = state["envs.done"], done
        self._require_range(step.obs)
        state["envs.obs"] = self._observe(state, step.obs)
        return state, rollout

    def _store_episode_info(self, rollout: Arrays, t: int, episode_info: Mapping[str, np.ndarray]) -> None:
        """Write numbers that the environments reported in step `t` to the rollout; NaN in steps without a report."""
        for name, numbers in episode_info.items():
            if numbers.shape != (self._num_envs,):
                raise RunError(f"info[{name!r}] is not one number for each environment: leave it out of env.info")
            if f"info.{name}" not in rollout:
                rollout[f"info.{name}"] = np.full(rollout["rewards"].shape, np.nan)
            rollout[f"info.{name}"][t] = numbers

    def end_rollout(self, state: Arrays, rollout: Arrays) -> tuple[Arrays, EnvRollout]:
        """State after a rollout, and its result."""
        rewards, raw_rewards, value_mask = rollout["rewards"], rollout["raw_rewards"], ~rollout["done"][:-1]
        if not is_in_range(raw_rewards):
            raise out_of_range("a reward", raw_rewards.T, self._first)
        if self._ppo.norm_reward:
            rewards = self._normalize_rewards(state, rewards, value_mask)
        totals = EpisodeTotals(state["envs.returns"], state["envs.lengths"])
        episode_info = {
            name.removeprefix("info."): array for name, array in rollout.items() if name.startswith("info.")
        }
        totals, episodes = accumulate_episodes(totals, raw_rewards, rollout["episode_over"], value_mask, episode_info)
        state["envs.returns"], state["envs.lengths"] = totals
        flags = {
            "rewards": rewards,
            "terminated": rollout["terminated"],
            "truncated": rollout["truncated"],
            "value_mask": value_mask,
            "policy_mask": rollout["policy_mask"][:-1] & value_mask,
            "episode_start": np.concatenate([rollout["episode_start"][None], ~value_mask[:-1]]),
        }
        return state, EnvRollout(flags, episodes, 1.0 - float(np.mean(value_mask)))

    def _observe(self, state: Arrays, raw: np.ndarray) -> np.ndarray:
        """Observations in the network's layout; with `norm_obs`, updates the statistics in `state` and normalises."""
        if self._ppo.norm_obs:
            stats, raw = normalize.select_stats(state, "normalize.obs"), raw.astype(np.float64, copy=False)
            stats = normalize.update_stats(FastNumpy, stats, raw, all_reduce_moments=self._all_reduce_moments)
            raw = normalize.normalize_observations(FastNumpy, stats, raw, self._ppo.obs_clip)
            state |= normalize.stats_arrays(stats, "normalize.obs")
        return self._network.to_input_layout(raw)

    def _normalize_rewards(self, state: Arrays, rewards: np.ndarray, value_mask: np.ndarray) -> np.ndarray:
        """Rewards `[T, N]` float32, divided by the standard deviation of discounted returns up to each step, clipped.

        Updates the statistics and the discounted returns in `state`.
        """
        stats, returns = normalize.select_stats(state, "normalize.return"), state["envs.discounted_returns"]
        mask, normalized, hp = value_mask.astype(np.float64), np.empty_like(rewards), self._ppo
        step_moments = []
        for t, row in enumerate(rewards):
            returns = normalize.update_discounted_returns(returns, row, mask[t], hp.gamma)
            step_moments.append(normalize.moments(FastNumpy, returns, mask[t]))
        if self._process_group:  # one collective operation for all steps
            columns = self._all_reduce_moments(
                Moments(*(np.array(column) for column in zip(*step_moments, strict=True)))
            )
            step_moments = [Moments(*row) for row in zip(*columns, strict=True)]
        for t, row in enumerate(rewards):
            stats = normalize.merge_moments(stats, step_moments[t])
            normalized[t] = normalize.normalize_rewards(FastNumpy, stats, row, hp.reward_clip)
        state |= normalize.stats_arrays(stats, "normalize.return") | {"envs.discounted_returns": returns}
        return normalized
