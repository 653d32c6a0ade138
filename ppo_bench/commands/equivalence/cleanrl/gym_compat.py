"""gymnasium with the interface that CleanRL's scripts were written for, 0.29's and older."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.utils import RunningMeanStd

from ppo_bench.commands.equivalence.cleanrl.script import Script, install_module, patch


def install(script: Script) -> None:
    """Put a module `gym` in place, and the supplied seeds into vectors of environments."""
    script.used.add("gym")
    sys.modules["gym"] = gymnasium
    for part in ("spaces", "wrappers", "vector"):
        sys.modules[f"gym.{part}"] = importlib.import_module(f"gymnasium.{part}")
    install_module("gym.wrappers.normalize", RunningMeanStd=RunningMeanStd)
    vars(gymnasium.vector)["SyncVectorEnv"] = functools.partial(PatchedSyncVectorEnv, script)
    _install_wrappers(script)
    try:
        import ale_py
    except ImportError:
        return
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _install_wrappers(script: Script) -> None:
    wrappers: Any = gymnasium.wrappers
    gymnasium.Wrapper.__getattr__ = _attribute_of_wrapped  # type: ignore[attr-defined]
    wrappers.GrayScaleObservation, wrappers.FrameStack = wrappers.GrayscaleObservation, wrappers.FrameStackObservation

    @patch(wrappers, "TransformObservation")
    def transform(original: Any, env: Any, func: Any, observation_space: Any = None) -> Any:
        return original(env, func, observation_space or env.observation_space)

    wrappers.NormalizeObservation = NormalizeObservation
    wrappers.NormalizeReward = functools.partial(NormalizeReward, script)


def _attribute_of_wrapped(self: Any, name: str) -> Any:
    if name.startswith("_") or name == "env":
        raise AttributeError(name)
    return getattr(self.env, name)


def round_rewards(script: Script, rewards: Any) -> Any:
    """Rewards, rounded to float32 unless that is left out."""
    nearest = np.float64(np.float32(rewards))
    return nearest if (nearest != rewards).any() and script.uses("reward-f32") else rewards


class PatchedSyncVectorEnv(SyncVectorEnv):
    """gymnasium's vector of environments, with the supplied seeds."""

    def __init__(self, script: Script, env_fns: Any) -> None:
        script.used.add("vector")
        self._script, self._wrappers = script, JointWrappers(script)
        if script.spec.normalizes and script.num_envs > 1 and script.uses("joint-stats"):
            self._wrappers.capture()
        super().__init__(env_fns, autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """The first observations, and infos."""
        self._script.used.add("environment seeds")
        obs, info = super().reset(seed=[*self._script.env_seeds], options=options)
        return self._wrappers.transform_observations(obs), info

    def step(self, actions: Any) -> Any:
        """Observations, rewards, flags and infos."""
        script = self._script
        if actions.dtype.kind == "f" and script.uses("action-f32"):
            actions = actions.astype(np.float32)
        was_reset = script.next_resets
        obs, reward, terminated, truncated, info = super().step(actions)
        script.note_step(terminated | truncated)
        reward = self._wrappers.transform_rewards(round_rewards(script, reward))
        if "episode" in info:
            sums, ended = info["episode"], np.flatnonzero(info["_episode"])
            info["final_info"] = [{"episode": {"r": sums["r"][k], "l": sums["l"][k]}} for k in ended]
        if script.training_spec.network.carry and was_reset.any() and script.uses("resets"):
            terminated = terminated | was_reset  # so that an episode's first observation clears the carry, too
        return self._wrappers.transform_observations(obs), reward, terminated, truncated, info


# --- Normalisation in each environment --------------------------------------------------------------------------------


class NormalizeObservation(gymnasium.ObservationWrapper[Any, Any, Any]):
    """gymnasium 0.29.1's wrapper of this name, in float64."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._normalizer = BatchObservationNormalizer(env)

    def observation(self, observation: Any) -> Any:
        """The normalised observation."""
        return self._normalizer(observation[None])[0]


class NormalizeReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """gymnasium 0.29.1's wrapper of this name, with the known differences neutralised."""

    def __init__(self, script: Script, env: gymnasium.Env[Any, Any], gamma: float = 0.99) -> None:
        super().__init__(env)
        script.used.add("normalize")
        self._script, self._gamma, self._stats, self._sum = script, gamma, RunningMeanStd(), np.zeros(1)

    def reset(self, **options: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        if self._script.uses("reward-rule"):
            self._sum = np.zeros(1)
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = round_rewards(self._script, np.array([float(reward)]))
        forgets = terminated and not self._script.uses("reward-rule")
        self._sum = self._sum * self._gamma * (1.0 - forgets) + reward
        self._stats.update(self._sum)
        (reward,) = round_rewards(self._script, reward / np.sqrt(self._stats.var + 1e-8))
        return obs, float(reward), terminated, truncated, info


# --- Normalisation over a vector of environments ----------------------------------------------------------------------


class BatchObservationNormalizer:
    """Normalises observations `[N, ...]` by their running mean and variance, in float64."""

    def __init__(self, env: Any) -> None:
        self._stats = RunningMeanStd(shape=env.observation_space.shape)

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        """Normalised observations, counted first."""
        self._stats.update(obs)
        normalized: np.ndarray = (obs - self._stats.mean) / np.sqrt(self._stats.var + 1e-8)
        return normalized


class JointRewardNormalizer:
    """Normalises rewards `[N]` as gym 0.23.1; its statistics leave out steps that only reset an environment."""

    def __init__(self, script: Script, gamma: float) -> None:
        self._script, self._gamma = script, gamma
        self._stats, self._sums = RunningMeanStd(), np.zeros(script.num_envs)

    def __call__(self, rewards: np.ndarray) -> Any:
        """Normalised rewards, counted first."""
        self._sums = self._sums * self._gamma + rewards
        resets = self._script.resets[-1]
        counted = self._sums[~resets] if resets.any() and self._script.uses("resets") else self._sums
        if counted.size:
            self._stats.update(counted)
        self._sums[self._script.next_resets] = 0.0
        return round_rewards(self._script, rewards / np.sqrt(self._stats.var + 1e-8))


class JointWrappers:
    """gymnasium's wrappers of observations and rewards, applied to a whole vector of environments."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._of_observations: dict[str, Callable[[Any], Any]] = {}
        self._of_rewards: dict[str, Callable[[Any], Any]] = {}

    def capture(self) -> None:
        """Replace the wrappers by functions that return their environment unchanged."""

        def capture(functions: dict[str, Callable[[Any], Any]], name: str, make: Callable[..., Any]) -> None:
            def record_and_return_env(env: Any, *arguments: Any, **options: Any) -> Any:
                if name not in functions:  # each environment of the vector has the same wrappers
                    functions[name] = make(env, *arguments, **options)
                return env

            setattr(gymnasium.wrappers, name, record_and_return_env)

        capture(self._of_observations, "NormalizeObservation", BatchObservationNormalizer)
        capture(self._of_observations, "TransformObservation", lambda env, function, *_: function)
        capture(self._of_rewards, "NormalizeReward", lambda env, gamma=0.99: JointRewardNormalizer(self._script, gamma))
        capture(self._of_rewards, "TransformReward", lambda env, function: function)

    def transform_observations(self, obs: Any) -> Any:
        """Observations after all wrappers."""
        for function in self._of_observations.values():
            obs = function(obs)
        return obs

    def transform_rewards(self, rewards: Any) -> Any:
        """Rewards `[N]` after all wrappers."""
        for function in self._of_rewards.values():
            rewards = function(rewards)
        return rewards
