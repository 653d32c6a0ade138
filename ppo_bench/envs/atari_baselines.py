"""Atari on gymnasium with the frames and resets of OpenAI Baselines' wrappers: `env.atari.baselines=true`.

This is the task of CleanRL's ppo_atari.py and of its published results. A game begins with 1 to 30 no-ops. If the game
has FIRE, a step of FIRE and a step of the action with the next number follow, at the start of a game and after every
lost life. The frame stack is then refilled. Frames are pooled and scaled in colour, and converted to grey afterwards. A
game is truncated by ale-py after 108,000 frames, including no-ops.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation, GrayscaleObservation, MaxAndSkipObservation, ResizeObservation

from ppo_bench.envs.atari import FIRE, FRAME_SKIP, NOOP, NOOP_MAX, Lives, has_fire, make_game
from ppo_bench.envs.base import Atari

MAX_FRAMES_PER_GAME = 108_000


class NoopStart(gymnasium.Wrapper):
    """A wrapper that starts each game with 1 to 30 single-frame no-ops; their number comes from `np_random`."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new game and play its no-ops."""
        obs, info = self.env.reset(seed=seed, options=options)
        for _ in range(int(self.np_random.integers(1, NOOP_MAX + 1))):
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset(seed=seed, options=options)
        return obs, info


class BaselinesEpisode(Lives):
    """`Lives` in which `reset` plays the first steps of an episode.

    After a lost life that is a no-op; then, in games with FIRE, FIRE and the action with the next number. The rewards
    of these steps are discarded.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodic_life: bool) -> None:
        super().__init__(env, episodic_life)
        self._first_actions = (FIRE, FIRE + 1) if has_fire(env) else ()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Continue with the next life after a lost one, unless a seed is given; in all other cases start a new game.

        One of these cases is the time limit of a wrapper around this one.
        """
        obs, info = self._begin(self._life_lost and seed is None, seed, options)
        for action in self._first_actions:
            obs, _, terminated, truncated, info = self.step(action)
            if terminated or truncated:  # as in Baselines, the returned frame stays that of the ended game
                self._begin(self._life_lost, seed, options)
        return obs, info

    def _begin(self, same_game: bool, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        """Continue with the next life by one no-op if `same_game`, else start a new game; also if the no-op ends it."""
        over = not same_game
        if same_game:
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            over = terminated or truncated
        if over:
            obs, info = self.env.reset(seed=seed, options=options)
        self._start_episode()
        return obs, info


def make_atari_baselines(
    env_id: str, rules: Atari, render_mode: str | None = None, kwargs: Mapping[str, Any] = MappingProxyType({})
) -> gymnasium.Env[Any, Any]:
    """An Atari game with observations `[frames, 84, 84]` uint8; `info["life_lost"]` as in `BaselinesEpisode`.

    `kwargs` as in `make_game`.
    """
    env = make_game(env_id, rules, MAX_FRAMES_PER_GAME, render_mode, kwargs)
    env = MaxAndSkipObservation(NoopStart(env), FRAME_SKIP)
    env = BaselinesEpisode(env, rules.episodic_life)
    env = GrayscaleObservation(ResizeObservation(env, (84, 84)))
    return FrameStackObservation(env, rules.frames)
