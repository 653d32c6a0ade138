"""Proof of memory: walk to the end of a line that was shown to pay, after it is shown no more.

The smallest task that no policy without a memory can do (the proof of concept of Pleines et al. 2023, Memory Gym). Its
rules stand once, over NumPy and JAX: below as gymnasium's environment, in `ppo_bench/envs/jax/proof_of_memory.py` as a
JAX program's. Both draw an episode from (seed, its number), so that equal seeds and actions play the same on each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

ENDS = 5
"""Steps from the middle to either end."""
POSITIONS = np.arange(-ENDS, ENDS + 1, dtype=np.float32) / ENDS
"""Positions as they are observed."""
STARTS = 2
"""An episode begins within so many steps of the middle."""
SHOWN_STEPS = 2
"""In which the ends are shown and nobody moves, at no cost."""
PAYS = 1.6
STEP_COSTS = 0.1
TIME_LIMIT = 16


class Line(NamedTuple):
    """Where an episode stands; integers `[N]` each."""

    position: Array
    """From `-ENDS` to `ENDS`."""
    pays: Array
    """1 if the right end pays and the left one costs, else -1."""
    steps: Array


def first(xp: Any, words: Array) -> Line:
    """Beginnings of episodes from random words `[N, 2]` int32."""
    where, which = words.T
    starts = noise.uniform(xp, where, xp.float32) * (2 * STARTS + 1)
    right = noise.uniform(xp, which, xp.float32) < 0.5
    return Line(starts.astype(xp.int32) - STARTS, xp.where(right, 1, -1), xp.zeros_like(where))


def moved(xp: Any, line: Line, actions: Array) -> tuple[Line, Array, Array]:
    """The lines, rewards `[N]` and terminated `[N]` after actions `[N]`: 1 goes right, 0 left."""
    walks = line.steps >= SHOWN_STEPS
    position = line.position + xp.where(actions == 1, 1, -1) * walks
    arrived = abs(position) == ENDS
    pays = PAYS * xp.sign(position) * line.pays
    return Line(position, line.pays, line.steps + 1), xp.where(arrived, pays, -STEP_COSTS) * walks, arrived


def observed(xp: Any, line: Line) -> Array:
    """Observations `[N, 3]` float32: what the left end pays, the position, and what the right end pays.

    The ends are 0 once they are shown no more.
    """
    shown = line.pays * (line.steps <= SHOWN_STEPS)
    return xp.stack([-shown, xp.asarray(POSITIONS)[line.position + ENDS], shown], -1).astype(xp.float32)


def observation_space() -> spaces.Box[Any]:
    """The space of one environment."""
    return spaces.Box(-1.0, 1.0, (3,), np.float32)


class ProofOfMemory(gymnasium.Env[np.ndarray, np.int64]):
    """The task as gymnasium's environment."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 4}  # noqa: RUF012 (gymnasium's)

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = observation_space(), spaces.Discrete(2)
        self.render_mode = render_mode
        self._seed, self._episode = 0, -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        """See `gymnasium.Env.reset`; without a seed, the next episode of the last one."""
        super().reset(seed=seed)
        self._seed, self._episode = (self._seed, self._episode + 1) if seed is None else (seed, 0)
        seeds, episodes = np.array([[self._seed], [self._episode]], np.int32)
        self._line = first(np, noise.reset_words(np, seeds, episodes, 2))
        return observed(np, self._line)[0], {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        """See `gymnasium.Env.step`."""
        self._line, rewards, arrived = moved(np, self._line, np.asarray(action)[None])
        return observed(np, self._line)[0], float(rewards[0]), bool(arrived[0]), False, {}

    def render(self) -> np.ndarray:
        """The line, `[32, 352, 3]` uint8: the walker blue, ends green and red while they are shown."""
        colours = np.full((2 * ENDS + 1, 3), 220, np.uint8)
        left, _, right = observed(np, self._line)[0]
        for end, pays in ((0, left), (-1, right)):
            if pays:
                colours[end] = (44, 160, 44) if pays > 0 else (214, 39, 40)
        colours[self._line.position[0] + ENDS] = (31, 119, 180)
        return np.kron(colours[None], np.ones((32, 32, 1), np.uint8))


gymnasium.register("ProofOfMemory-v0", f"{__name__}:ProofOfMemory", max_episode_steps=TIME_LIMIT)
