"""Broken environments, one for each kind of fault, as a user might write them."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces


class Sound(gymnasium.Env[Any, Any]):
    """Four numbers, two choices, ten steps."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.obs(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.obs(), 1.0, self.steps == 10, False, {}

    def obs(self) -> Any:
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


class Moves(Sound):
    """An environment without a fault, which changes the current folder when it is made."""

    def __init__(self) -> None:
        os.chdir(Path(__file__).parent)


class Shape(Sound):
    def obs(self) -> Any:
        return np.zeros(3, np.float32)


class BreaksLater(Sound):
    count = 0

    def obs(self) -> Any:
        self.count += 1
        return super().obs() if self.count < 300 else np.full(4, np.nan, np.float32)


class Vast(Sound):
    """A single number of float64's range in the 300th observation, or in its reward."""

    observation_space = spaces.Box(-np.inf, np.inf, (4,), np.float64)  # type: ignore[arg-type]
    count = 0

    def __init__(self, obs: float = 0.0, reward: float = 1.0) -> None:
        self.vast_obs, self.vast_reward = obs, reward

    def obs(self) -> Any:
        self.count += 1
        obs = self.np_random.uniform(-1, 1, 4)
        return obs if self.count != 300 else np.array([0.0, 0.0, self.vast_obs, 0.0])

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        return obs, reward if self.count != 300 else self.vast_reward, *rest


class BreaksAtRestart(Sound):
    resets = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.resets += seed is not None
        obs, info = super().reset(seed=seed)
        return obs if self.resets < 2 else np.full(4, np.nan, np.float32), info


class LargeIntegers(Sound):
    """An environment without a fault, whose numbers 32 bits do not hold."""

    observation_space = spaces.Box(0, 2**40, (4,), np.int64)  # type: ignore[arg-type]

    def obs(self) -> Any:
        return self.np_random.integers(0, 2**40, 4)


class NoInfo(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class Raises(Sound):
    def obs(self) -> Any:
        raise KeyError("velocity")


class RaisesInRank1(Sound):
    """Fails in step 300 of the second of the processes that share a training."""

    count = 0

    def step(self, action: Any) -> Any:
        self.count += 1
        if self.count >= 300 and os.environ.get("RANK") == "1":
            raise KeyError("the environment of rank 1")
        return super().step(action)


class Parts(Sound):
    """Observations of two parts, of which the second has another shape than declared."""

    observation_space = spaces.Dict({"a": Sound.observation_space, "b": spaces.Box(-1, 1, (2,))})  # type: ignore[assignment]

    def obs(self) -> Any:
        return {"a": super().obs(), "b": np.zeros(3, np.float32)}


class MissingPart(Parts):
    def obs(self) -> Any:
        return {"a": super().obs()["a"]}


class Fails(Sound):
    """Fails as `how` says, once, in the method `where`, from the call number `when` of it in a process.

    Calls are counted over all environments of a process: one is tried before a training, and resets twice for that.
    """

    calls: ClassVar[Counter[str]] = Counter()

    def __init__(self, how: str, where: str, when: int = 1) -> None:
        self.how, self.where, self.when = how, where, when
        self._call("__init__")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._call("reset")
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self._call("step")
        return super().step(action)

    def _call(self, method: str) -> None:
        Fails.calls[method] += 1
        if method == self.where and Fails.calls[method] >= self.when:
            if self.how == "exits":
                sys.exit(0)
            (Path(__file__).parent / "level.dat").read_bytes()


def _kinds(kind: type[Sound]) -> list[type[Sound]]:
    return [kind, *(found for below in kind.__subclasses__() for found in _kinds(below))]


for kind in _kinds(Sound):
    gymnasium.register(f"{kind.__name__}-v0", entry_point=f"tests.broken:{kind.__name__}")
