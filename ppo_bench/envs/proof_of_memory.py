"""Proof of memory, a small memory task: walk to the end of a line whose goals are visible only at the start.

A policy without memory cannot solve it (the proof-of-concept environment of Pleines et al. 2023, "Memory Gym"). The
rules are written once, for gymnasium and for environments on the device. Both draw an episode from the seed and the
episode's number, so that equal seeds and actions give equal episodes on both.
"""

from __future__ import annotations

from typing import NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from ppo_bench.envs.dynamics.base import PortableDynamics
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Array

ENDS = 5
"""Number of steps from the middle of the line to either end."""
POSITIONS = np.arange(-ENDS, ENDS + 1, dtype=np.float32) / ENDS
"""The observed value of each position, from -1 to 1."""
STARTS = 2
"""Maximum distance between the start of an episode and the middle of the line."""
SHOWN_STEPS = 2
"""Number of first steps, which show the rewards of the ends, do not move the agent and cost nothing."""
PAYS = 1.6
STEP_COSTS = 0.1
TIME_LIMIT = 16


class Line(NamedTuple):
    """State of N environments; integers `[N]`."""

    position: Array
    """Position from `-ENDS` (left end) to `ENDS` (right end)."""
    pays: Array
    """1 if the reward is positive at the right end and negative at the left end, -1 for the opposite."""
    steps: Array
    """Number of steps since the start of the episode."""


class ProofOfMemory(PortableDynamics):
    """`Dynamics` of the task: the action 1 goes right, 0 left."""

    time_limit = TIME_LIMIT
    num_words = 2

    def __init__(self) -> None:
        self._positions = POSITIONS
        self.observation_space, self.action_space = spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(2)

    def reset(self, words: Array) -> Line:
        """See `Dynamics.reset`."""
        xp, (where, which) = self.xp, words.T
        starts = noise.uniform(xp, where, xp.float32) * (2 * STARTS + 1)
        right = noise.uniform(xp, which, xp.float32) < 0.5
        return Line(xp.asarray(starts, dtype=xp.int32) - STARTS, xp.where(right, 1, -1), xp.zeros_like(where))

    def step(self, state: Line, actions: Array) -> tuple[Line, Array, Array]:
        """See `Dynamics.step`."""
        xp, walks = self.xp, state.steps >= SHOWN_STEPS
        position = state.position + xp.where(actions == 1, 1, -1) * walks
        arrived = abs(position) == ENDS
        pays = PAYS * xp.sign(position) * state.pays
        return Line(position, state.pays, state.steps + 1), xp.where(arrived, pays, -STEP_COSTS) * walks, arrived

    def observe(self, state: Line) -> Array:
        """Observations `[N, 3]` float32: sign of the left end's reward, position, sign of the right end's reward.

        Both signs are 0 once they are no longer visible.
        """
        xp = self.xp
        visible = xp.asarray(state.pays * (state.steps <= SHOWN_STEPS), dtype=xp.float32)
        return xp.stack((-visible, xp.asarray(self._positions)[state.position + ENDS], visible), -1)

    def draw(self, state: Line) -> np.ndarray:
        """An image `[32, 352, 3]` uint8 of the line: the agent blue, the ends green and red while they are visible."""
        colours = np.full((2 * ENDS + 1, 3), 220, np.uint8)
        left, _, right = self.observe(state)[0]
        for end, pays in ((0, left), (-1, right)):
            if pays:
                colours[end] = (44, 160, 44) if pays > 0 else (214, 39, 40)
        colours[state.position[0] + ENDS] = (31, 119, 180)
        return np.kron(colours[None], np.ones((32, 32, 1), np.uint8))


gymnasium.register(
    "ProofOfMemory-v0",
    "ppo_bench.envs.dynamics.gymnasium_env:DynamicsGymnasiumEnv",
    max_episode_steps=TIME_LIMIT,
    kwargs={"dynamics": ProofOfMemory()},
)
