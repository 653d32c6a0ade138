"""gymnasium with the interface that CleanRL's scripts were written for, 0.29's and older."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ppo_bench.commands.equivalence.cleanrl.script import Script


def install(script: Script) -> None:
    """Put a module `gym` in place, and the supplied seeds into vectors of environments."""
    script.used.add("gym")
    sys.modules["gym"] = gymnasium
    for part in ("spaces", "wrappers", "vector"):
        sys.modules[f"gym.{part}"] = importlib.import_module(f"gymnasium.{part}")
    gymnasium.Wrapper.__getattr__ = _attribute_of_wrapped  # type: ignore[attr-defined]
    wrappers: Any = gymnasium.wrappers
    wrappers.GrayScaleObservation, wrappers.FrameStack = wrappers.GrayscaleObservation, wrappers.FrameStackObservation
    own_transform = wrappers.TransformObservation

    def transform(env: Any, func: Any, observation_space: Any = None) -> Any:
        return own_transform(env, func, observation_space or env.observation_space)

    wrappers.TransformObservation = transform
    own_normalize = wrappers.NormalizeObservation
    wrappers.NormalizeReward = lambda env, gamma=0.99: NormalizeReward(env, gamma, script)
    wrappers.NormalizeObservation = lambda env: (
        NormalizeObservation(env) if script.uses("obs-f64") else own_normalize(env)
    )
    joint = None
    if script.known.normalizes and script.num_envs > 1 and script.uses("joint-stats"):
        joint = JointWrappers(script)
        joint.install()

    class VectorEnv(SyncVectorEnv):
        """gymnasium's, with the supplied seeds."""

        def __init__(self, env_fns: Any) -> None:
            script.used.add("vector")
            super().__init__(env_fns, autoreset_mode=AutoresetMode.NEXT_STEP)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            script.used.add("environment seeds")
            obs, info = super().reset(seed=[*script.env_seeds], options=options)
            return joint.observed(obs) if joint else obs, info

        def step(self, actions: Any) -> Any:
            if actions.dtype.kind == "f" and script.uses("action-f32"):
                actions = actions.astype(np.float32)
            was_reset = script.next_resets
            obs, reward, terminated, truncated, info = super().step(actions)
            script.note_step(terminated | truncated)
            rounded = reward.astype(np.float32).astype(np.float64)
            if (rounded != reward).any() and script.uses("reward-f32"):
                reward = rounded
            if joint:
                obs, reward = joint.observed(obs), joint.rewarded(reward, terminated | truncated)
            if "episode" in info:
                sums, ended = info["episode"], np.flatnonzero(info["_episode"])
                info["final_info"] = [{"episode": {"r": sums["r"][k], "l": sums["l"][k]}} for k in ended]
            if script.supply.recurrent and was_reset.any() and script.uses("resets"):
                terminated = terminated | was_reset  # so that an episode's first observation clears the memory, too
            return obs, reward, terminated, truncated, info

    gymnasium.vector.SyncVectorEnv = VectorEnv  # type: ignore[misc,assignment]
    normalize: Any = types.ModuleType("gym.wrappers.normalize")
    normalize.RunningMeanStd = RunningMeanStd
    sys.modules["gym.wrappers.normalize"] = normalize
    try:
        import ale_py
    except ImportError:
        return
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


def _attribute_of_wrapped(self: Any, name: str) -> Any:
    if name.startswith("_") or name == "env":
        raise AttributeError(name)
    return getattr(self.env, name)


class RunningMeanStd:
    """Running mean and variance, as in gymnasium 0.29.1 (Chan et al. 1979); independent of ours, which it checks."""

    def __init__(self, epsilon: float = 1e-4, shape: tuple[int, ...] = ()) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), epsilon

    def update(self, x: np.ndarray) -> None:
        """Take in the rows of `x`."""
        self.update_from_moments(x.mean(0), x.var(0), len(x))

    def update_from_moments(self, mean: Any, var: Any, count: int) -> None:
        """Take in `count` rows with these moments."""
        delta, total = mean - self.mean, self.count + count
        moments = self.var * self.count + var * count + np.square(delta) * self.count * count / total
        self.mean, self.var, self.count = self.mean + delta * count / total, moments / total, total


class NormalizeObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """gymnasium 0.29.1's wrapper of this name, for one environment."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._stats = RunningMeanStd(shape=env.observation_space.shape or ())

    def _normalized(self, obs: Any) -> np.ndarray:
        self._stats.update(np.array([obs]))
        return np.asarray((obs - self._stats.mean) / np.sqrt(self._stats.var + 1e-8))

    def reset(self, **options: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        obs, info = self.env.reset(**options)
        return self._normalized(obs), info

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        obs, *rest = self.env.step(action)
        return self._normalized(obs), *rest


class NormalizeReward(gymnasium.Wrapper[Any, Any, Any, Any]):
    """gymnasium 0.29.1's wrapper of this name, for one environment, with the known differences neutralised."""

    def __init__(self, env: gymnasium.Env[Any, Any], gamma: float, script: Script) -> None:
        super().__init__(env)
        self._gamma, self._script = gamma, script
        script.used.add("normalize")
        self._stats, self._returned = RunningMeanStd(), 0.0

    def reset(self, **options: Any) -> Any:
        """See `gymnasium.Env.reset`."""
        if self._script.uses("reward-rule"):
            self._returned = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """See `gymnasium.Env.step`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        reward = self._rounded(float(reward))
        kept = 1.0 if self._script.uses("reward-rule") else 1.0 - terminated
        self._returned = self._returned * self._gamma * kept + reward
        self._stats.update(np.array([self._returned]))
        return obs, self._rounded(reward / float(np.sqrt(self._stats.var + 1e-8))), terminated, truncated, info

    def _rounded(self, reward: float) -> float:
        return float(np.float32(reward)) if self._script.uses("reward-f32") else reward


class VectorRewards:
    """gym 0.23.1's `NormalizeReward` of a vector of environments, whose statistics leave out steps that only reset."""

    def __init__(self, gamma: float, script: Script) -> None:
        self._gamma, self._script = gamma, script
        self._stats, self._returned = RunningMeanStd(), np.zeros(script.num_envs)

    def normalized(self, rewards: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Normalised rewards `[N]`; `done [N]` says which steps end an episode."""
        self._returned = self._returned * self._gamma + rewards
        resets = self._script.resets[-1]
        counted = ~resets if resets.any() and self._script.uses("resets") else np.ones(len(done), bool)
        if counted.any():
            self._stats.update(self._returned[counted])
        rewards = rewards / np.sqrt(self._stats.var + 1e-8)
        self._returned[done] = 0.0
        if self._script.uses("reward-f32"):
            rewards = rewards.astype(np.float32).astype(np.float64)
        return rewards


class JointWrappers:
    """Normalisation over all environments in place of wrappers of each, and the functions that clip behind it."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._stats: RunningMeanStd | None = None
        self._rewards: VectorRewards | None = None
        self._functions: dict[str, Any] = {}

    def install(self) -> None:
        """Replace the wrappers by functions that return their environment unchanged."""

        def normalize_observation(env: Any) -> Any:
            self._stats = self._stats or RunningMeanStd(shape=env.observation_space.shape)
            return env

        def normalize_reward(env: Any, gamma: float = 0.99) -> Any:
            self._rewards = self._rewards or VectorRewards(gamma, self._script)
            return env

        def transform(kind: str) -> Any:
            def keep(env: Any, function: Any, *_: Any) -> Any:
                self._functions[kind] = function
                return env

            return keep

        wrappers: Any = gymnasium.wrappers
        wrappers.NormalizeObservation, wrappers.NormalizeReward = normalize_observation, normalize_reward
        wrappers.TransformObservation, wrappers.TransformReward = transform("obs"), transform("reward")

    def observed(self, obs: np.ndarray) -> np.ndarray:
        """Normalised and clipped observations `[N, D]`."""
        assert self._stats
        self._stats.update(obs)
        clipped: np.ndarray = self._functions["obs"]((obs - self._stats.mean) / np.sqrt(self._stats.var + 1e-8))
        return clipped

    def rewarded(self, rewards: np.ndarray, done: np.ndarray) -> np.ndarray:
        """Normalised and clipped rewards `[N]`."""
        assert self._rewards
        clipped: np.ndarray = self._functions["reward"](self._rewards.normalized(rewards, done))
        return clipped
