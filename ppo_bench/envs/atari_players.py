"""Multi-player Atari games of PettingZoo, with the observations of CleanRL's ppo_pettingzoo_ma_atari.py.

An observation consists of stacked frames of 84 x 84 pixels and one plane for each player. A frame is the blue channel
of the maximum of the last two of four skipped frames. The observing player's plane is 255, the others are 0.
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.envs.base import Atari

SIZE = 84
FRAMES_PER_STEP = 4
BLUE = 2


def require_atari(env_id: str, rules: Atari | None) -> None:
    """Raise `ConfigError` if a package of these games is missing, or if `rules` do not suit several players."""
    require("multi_agent_ale_py", "pettingzoo", f"{env_id} on backend=pettingzoo")
    require("ale_py", "pettingzoo", f"{env_id} on backend=pettingzoo")  # its ROMs
    if rules is None:
        return
    require("tinyscaler", "pettingzoo", f"{env_id} on backend=pettingzoo")
    if rules.episodic_life:
        raise ConfigError(
            f"env.atari.episodic_life=true: players of {env_id} lose lives at different times; set it to false"
        )


def roms() -> str:
    """Path of the ROM folder of ale-py."""
    import ale_py

    return str(Path(ale_py.__file__).parent / "roms")


class AtariPlayers:
    """A wrapper around the PettingZoo Atari game `env`, with the interface of a parallel environment."""

    def __init__(self, env: Any, rules: Atari) -> None:
        from gymnasium import spaces

        # Unwrapped, to skip two conversions that take as long as the game itself.
        self._env, self._frames = env.unwrapped, rules.frames
        self._env.ale.setFloat(b"repeat_action_probability", rules.repeat_action_probability)
        self.possible_agents: list[str] = self._env.possible_agents
        players = len(self.possible_agents)
        self._frame_stack = np.zeros((players, SIZE, SIZE, rules.frames + players), np.uint8)
        for player in range(players):
            self._frame_stack[player, ..., rules.frames + player] = 255
        self._screens: deque[np.ndarray] = deque(maxlen=2)
        self._space = spaces.Box(0, 255, self._frame_stack.shape[1:], np.uint8)

    def observation_space(self, agent: str) -> Any:
        """Observation space, which all players share."""
        return self._space

    def action_space(self, agent: str) -> Any:
        """Action space of the player `agent`."""
        return self._env.action_space(agent)

    def reset(self, seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start a new game; observations and infos by player."""
        obs, infos = self._env.reset(seed=seed)
        self._frame_stack[..., : self._frames] = 0
        self._screens = deque([self._blue(obs)], 2)
        return self._stack_frame(), infos

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Play four frames; observations, sums of rewards, terminated, truncated and infos by player."""
        rewards = dict.fromkeys(self.possible_agents, 0.0)
        for _ in range(FRAMES_PER_STEP):
            obs, frame_rewards, terminations, truncations, infos = self._env.step(actions)
            rewards = {player: rewards[player] + reward for player, reward in frame_rewards.items()}
            self._screens.append(self._blue(obs))
            if all(terminations[player] or truncations[player] for player in terminations):
                break
        return self._stack_frame(), rewards, terminations, truncations, infos

    def render(self) -> np.ndarray:
        """The screen, `[H, W, 3]` uint8."""
        screen: np.ndarray = self._env.ale.getScreenRGB()
        return screen

    def close(self) -> None:
        """Close the game."""
        self._env.close()

    def _blue(self, obs: dict[str, np.ndarray]) -> np.ndarray:
        return obs[self.possible_agents[0]][..., BLUE]  # all players see the same screen

    def _stack_frame(self) -> dict[str, np.ndarray]:
        """Observations by player, after appending the maximum of the latest two screens as the newest frame."""
        import tinyscaler

        screen = np.maximum.reduce(list(self._screens))
        frame = tinyscaler.scale(np.ascontiguousarray(screen[..., None]), (SIZE, SIZE), "bilinear")
        self._frame_stack[..., : self._frames - 1] = self._frame_stack[..., 1 : self._frames]
        self._frame_stack[..., self._frames - 1] = frame[..., 0]
        return dict(zip(self.possible_agents, self._frame_stack, strict=True))
