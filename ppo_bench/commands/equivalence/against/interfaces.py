"""Interfaces that CleanRL's scripts were written for, on the packages that are installed."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ppo_bench.commands.equivalence.against.running import Script

INTERFACES = {
    "writer": "SummaryWriter writes nothing; add_scalar('charts/learning_rate') marks the end of an iteration",
    "gym": "module gym is gymnasium, with the old names of its wrappers",
    "normalize": "NormalizeObservation and NormalizeReward are those of gymnasium 0.29.1, which CleanRL pins",
    "vector": "SyncVectorEnv resets an environment in a step of its own, as gymnasium's does since 1.0",
    "envpool": "envpool.make has the four values of old",
    "procgen": "procgen's games are EnvPool's",
    "gym 0.23": "wrappers of vectors of environments are those of gym 0.23.1",
}


def install(script: Script) -> None:
    """Put the interfaces in place of the packages' own."""
    _writer(script)
    _gym(script)
    if "envpool" in script.path.stem:
        _envpool(script)


def _writer(script: Script) -> None:
    class SummaryWriter:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            script.used.add("writer")

        def add_text(self, *arguments: Any) -> None:
            pass

        def add_scalar(self, tag: str, *arguments: Any) -> None:
            if tag == "charts/learning_rate":
                script.end_iteration()

        def close(self) -> None:
            pass

    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter
    sys.modules["torch.utils.tensorboard"] = module


def _gym(script: Script) -> None:
    sys.modules["gym"] = gymnasium
    for part in ("spaces", "wrappers", "vector"):
        sys.modules[f"gym.{part}"] = importlib.import_module(f"gymnasium.{part}")
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

    class VectorEnv(SyncVectorEnv):
        """gymnasium's, with the supplied seeds."""

        def __init__(self, env_fns: Any) -> None:
            script.used.add("vector")
            super().__init__(env_fns, autoreset_mode=AutoresetMode.NEXT_STEP)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            script.used.add("environment seeds")
            return super().reset(seed=list(script.supply.env_seeds), options=options)

        def step(self, actions: Any) -> Any:
            if actions.dtype.kind == "f" and script.uses("action-f32"):
                actions = actions.astype(np.float32)
            was_reset = script.next_resets
            obs, reward, terminated, truncated, info = super().step(actions)
            script.note_step(terminated | truncated)
            if script.supply.sequences:  # the memory is cleared before an episode's first observation, too
                terminated = terminated | was_reset
            return obs, reward, terminated, truncated, info

    gymnasium.vector.SyncVectorEnv = VectorEnv  # type: ignore[misc,assignment]
    try:
        import ale_py
    except ImportError:
        return
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)


class RunningMeanStd:
    """Running mean and variance, as in gymnasium 0.29.1 (Chan et al. 1979); independent of ours, which it checks."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean, self.var, self.count = np.zeros(shape), np.ones(shape), 1e-4

    def update(self, x: np.ndarray) -> None:
        """Take in the rows of `x`."""
        mean, var, count = x.mean(0), x.var(0), len(x)
        delta, total = mean - self.mean, self.count + count
        moments = self.var * self.count + var * count + np.square(delta) * self.count * count / total
        self.mean, self.var, self.count = self.mean + delta * count / total, moments / total, total


class NormalizeObservation(gymnasium.Wrapper[Any, Any, Any, Any]):
    """gymnasium 0.29.1's wrapper of this name, for one environment."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self._stats = RunningMeanStd(env.observation_space.shape or ())

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


def _envpool(script: Script) -> None:
    import envpool

    class Pool:
        """A pool that answers as before gymnasium's interface."""

        def __init__(self, task: str, options: dict[str, Any]) -> None:
            script.used.update(("envpool", "environment seeds"))
            options = {name: value for name, value in options.items() if name not in ("env_type", "seed")}
            self._pool = envpool.make_gymnasium(task, env_seed=script.supply.env_seeds, **options)
            self.num_envs = options["num_envs"]
            self.action_space, self.observation_space = self._pool.action_space, self._pool.observation_space

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["_pool"], name)

        def reset(self, **_: Any) -> Any:
            return self._pool.reset()[0]

        def step(self, actions: Any) -> Any:
            obs, reward, terminated, truncated, info = self._pool.step(np.asarray(actions))
            done = terminated | truncated
            script.note_step(done)
            return obs, reward, done, info | {"terminated": terminated, "TimeLimit.truncated": truncated}

    class Wrapper:
        """The base of the script's wrapper, for a pool, which gymnasium's own would refuse."""

        def __init__(self, env: Any) -> None:
            self.env = env

        def __getattr__(self, name: str) -> Any:
            return getattr(self.__dict__["env"], name)

        def reset(self, **options: Any) -> Any:
            return self.env.reset(**options)

        def step(self, action: Any) -> Any:
            return self.env.step(action)

    envpool.make = lambda task, **options: Pool(task, options)  # type: ignore[assignment]
    gymnasium.Wrapper = Wrapper  # type: ignore[misc,assignment]
