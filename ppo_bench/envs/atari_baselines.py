"""Atari on gymnasium with the frames and resets of OpenAI Baselines' wrappers: `env.atari.baselines=true`.

The task of CleanRL's ppo_atari.py, and of what was published with it. A game begins with 1 to 30 no-ops; where it has
FIRE, a step of FIRE and one of the action after it come next, at a game's start and after every lost life. The stack of
frames then starts anew. Colours are pooled and scaled before they are made grey. ale-py's own limit of 108,000 frames,
no-ops among them, truncates a game.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation, MaxAndSkipObservation, ResizeObservation

from ppo_bench.envs.atari import FIRE, FRAME_SKIP, NOOP, NOOP_MAX, STACKED_FRAMES, has_fire, make_game

MAX_FRAMES_PER_GAME = 108_000


class NoopStart(gymnasium.Wrapper):
    """Starts each game with 1 to 30 single-frame no-ops, drawn from the game's own generator."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A fresh game after its no-ops."""
        obs, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.np_random.integers(1, NOOP_MAX + 1))):
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset(seed=seed, options=options)
        return obs, info


class BaselinesEpisode(gymnasium.Wrapper):
    """Ends an episode with the game and, if `episodic_life`, with each lost life; the next one begins in a few steps.

    After a lost life they are a no-op, FIRE and the action after it, at a game's start without the no-op; in games
    without FIRE the no-op alone. What they earn is nobody's. `info["life_lost"]` is true where the game goes on.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodic_life: bool) -> None:
        super().__init__(env)
        self._episodic_life = episodic_life
        self._first_actions = (FIRE, FIRE + 1) if has_fire(env) else ()
        self._life_lost = False
        self._lives = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Goes on with the next life after a lost one, unless a seed asks for a fresh game.

        After anything else, such as the time limit of a wrapper around this one, the game is a fresh one.
        """
        obs, info = self._begin(self._life_lost and seed is None, seed, options)
        for action in self._first_actions:
            obs, _, terminated, truncated, info = self.step(action)
            if terminated or truncated:  # its frame stays the one that is shown, as in Baselines
                self._begin(self._life_lost, seed, options)
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One agent step of four frames."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        truncated = truncated and not terminated
        lives = self._remaining_lives()
        self._life_lost = self._episodic_life and not (terminated or truncated) and 0 < lives < self._lives
        self._lives = lives
        return obs, reward, terminated or self._life_lost, truncated, info | {"life_lost": self._life_lost}

    def _begin(self, same_game: bool, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """The next life, one no-op later, or a fresh game; that too if the no-op ends the game."""
        over = not same_game
        if same_game:
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            over = terminated or truncated
        if over:
            obs, info = self.env.reset(seed=seed, options=options)
        self._life_lost = False
        self._lives = self._remaining_lives()
        return obs, info

    def _remaining_lives(self) -> int:
        return int(self.unwrapped.ale.lives())  # type: ignore[attr-defined]


def make_atari_baselines(
    env_id: str,
    episodic_life: bool,
    render_mode: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    frames: int = STACKED_FRAMES,
    repeat_action_probability: float = 0.0,
) -> gymnasium.Env[Any, Any]:
    """One Atari game, observations `[frames, 84, 84]` uint8; `info["life_lost"]` as in `BaselinesEpisode`.

    `kwargs` as in `make_game`.
    """
    env = make_game(env_id, MAX_FRAMES_PER_GAME, render_mode, kwargs, repeat_action_probability)
    env = MaxAndSkipObservation(NoopStart(env), FRAME_SKIP)
    env = BaselinesEpisode(env, episodic_life)
    env = GrayscaleObservation(ResizeObservation(env, (84, 84)))
    return FrameStackObservation(env, frames)
