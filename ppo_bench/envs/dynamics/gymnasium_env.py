"""A gymnasium environment of portable dynamics, which plays what they play on the device."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from ppo_bench.mathematics import noise


class DynamicsGymnasiumEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One environment of `PortableDynamics` with a method `draw`, whose time limit is that of its registration.

    An episode is drawn from the seed and the episode's number, as on the device.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 (gymnasium's)

    def __init__(self, dynamics: Any, render_mode: str | None = None) -> None:
        self._dynamics = dynamics
        self.observation_space, self.action_space = dynamics.observation_space, dynamics.action_space
        self.render_mode = render_mode
        self._seed, self._episode = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """See `gymnasium.Env.reset`. Without a seed, it starts the next episode of the last seed."""
        super().reset(seed=seed)
        self._seed, self._episode = (self._seed, self._episode + 1) if seed is None else (seed, 0)
        seeds, episodes = np.array([[self._seed], [self._episode]], np.int32)
        self._state = self._dynamics.reset(noise.reset_words(np, seeds, episodes, self._dynamics.num_words))
        return self._dynamics.observe(self._state)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """See `gymnasium.Env.step`."""
        self._state, rewards, over = self._dynamics.step(self._state, np.asarray(action)[None])
        return self._dynamics.observe(self._state)[0], float(rewards[0]), bool(over[0]), False, {}

    def render(self) -> np.ndarray:
        """The picture of the state, `[H, W, 3]` uint8."""
        picture: np.ndarray = self._dynamics.draw(self._state)
        return picture
