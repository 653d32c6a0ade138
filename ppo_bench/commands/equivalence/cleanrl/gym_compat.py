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

from ppo_bench.commands.equivalence.cleanrl.script import Script, install_module


def install(script: Script) -> None:
    """Put a module `gym` in place, and the supplied seeds into vectors of environments."""
    sys.modules["gym"] = gymnasium
    for part in ("spaces", "wrappers", "vector"):
        sys.modules[f"gym.{part}"] = importlib.import_module(f"gymnasium.{part}")
    install_module("gym.wrappers.normalize", RunningMeanStd=RunningMeanStd)
    vars(gymnasium.vector)["SyncVectorEnv"] = functools.partial(PatchedSyncVectorEnv, script)
    _install_wrappers()
    try:
        import ale_py
    except ImportError:
        return
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _install_wrappers() -> None:
    wrappers: Any = gymnasium.wrappers
    gymnasium.Wrapper.__getattr__ = _attribute_of_wrapped  # type: ignore[attr-defined]
    wrappers.GrayScaleObservation, wrappers.FrameStack = wrappers.GrayscaleObservation, wrappers.FrameStackObservation


def _attribute_of_wrapped(self: Any, name: str) -> Any:
    if name.startswith("_") or name == "env":
        raise AttributeError(name)
    return getattr(self.env, name)


def _round_rewards(rewards: Any) -> Any:
    """Rewards, rounded to float32 as here."""
    return np.float64(np.float32(rewards))


class PatchedSyncVectorEnv(SyncVectorEnv):
    """gymnasium's vector of environments, with the supplied seeds."""

    def __init__(self, script: Script, env_fns: Any) -> None:
        self._script, self._wrappers = script, JointWrappers(script)
        super().__init__(env_fns, autoreset_mode=AutoresetMode.NEXT_STEP)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        """The first observations, and infos."""
        obs, info = super().reset(seed=[*self._script.env_seeds], options=options)
        return self._wrappers.transform_observations(obs), info

    def step(self, actions: Any) -> Any:
        """Observations, rewards, flags and infos."""
        script = self._script
        if actions.dtype.kind == "f":
            actions = actions.astype(np.float32)
        was_reset = script.next_resets
        obs, reward, terminated, truncated, info = super().step(actions)
        script.note_step(terminated | truncated)
        reward = self._wrappers.transform_rewards(_round_rewards(reward))
        if "episode" in info:
            sums, ended = info["episode"], np.flatnonzero(info["_episode"])
            info["final_info"] = [{"episode": {"r": sums["r"][k], "l": sums["l"][k]}} for k in ended]
        if script.training_spec.network.carry:
            terminated = terminated | was_reset  # so that an episode's first observation clears the carry, too
        return self._wrappers.transform_observations(obs), reward, terminated, truncated, info


# --- Normalisation ----------------------------------------------------------------------------------------------------


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
        counted = self._sums[~resets]
        if counted.size:
            self._stats.update(counted)
        self._sums[self._script.next_resets] = 0.0
        return _round_rewards(rewards / np.sqrt(self._stats.var + 1e-8))


class JointWrappers:
    """gymnasium's wrappers of observations and rewards, applied to a whole vector of environments.

    The wrappers themselves are replaced by functions that return their environment unchanged.
    """

    def __init__(self, script: Script) -> None:
        self._of_observations: dict[str, Callable[[Any], Any]] = {}
        self._of_rewards: dict[str, Callable[[Any], Any]] = {}

        def capture(functions: dict[str, Callable[[Any], Any]], name: str, make: Callable[..., Any]) -> None:
            def record_and_return_env(env: Any, *arguments: Any, **options: Any) -> Any:
                if name not in functions:  # each environment of the vector has the same wrappers
                    functions[name] = make(env, *arguments, **options)
                return env

            setattr(gymnasium.wrappers, name, record_and_return_env)

        capture(self._of_observations, "NormalizeObservation", BatchObservationNormalizer)
        capture(self._of_observations, "TransformObservation", lambda env, function, *_: function)
        capture(self._of_rewards, "NormalizeReward", lambda env, gamma: JointRewardNormalizer(script, gamma))
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
