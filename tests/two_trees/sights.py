"""An environment of images beside numbers, by gymnasium's interface alone; `env.id=sights:Sights-v0`."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Sights(gymnasium.Env[dict[str, Any], Any]):
    """Episodes of five steps, whose action is right if it tells whether a bright half and a number agree."""

    observation_space = spaces.Dict(
        sign=spaces.Box(-1.0, 1.0, (1,), np.float32), camera=spaces.Box(0, 255, (36, 36, 3), np.uint8)
    )
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.steps_left = 5
        return self._draw(), {}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        reward = float(int(action) == int(self.left == self.positive))
        self.steps_left -= 1
        return self._draw(), reward, self.steps_left == 0, False, {}

    def _draw(self) -> dict[str, Any]:
        self.left, self.positive = self.np_random.integers(2, size=2)
        camera = self.np_random.integers(0, 100, (36, 36, 3), np.uint8)
        camera[:, slice(18) if self.left else slice(18, None)] += 100
        return {"camera": camera, "sign": np.array([2.0 * self.positive - 1.0], np.float32)}


gymnasium.register("Sights-v0", "sights:Sights")
