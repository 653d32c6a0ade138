"""Atari on gymnasium, set to the same task as EnvPool's.

Frame by frame the two agree: gymnasium's `AtariPreprocessing` skips, pools and scales; the wrappers here do what it
leaves open (FIRE at the start, and lives that end an episode while the same game goes on). Its own
`terminal_on_life_loss` starts a new game with every life, which is another task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import MAX_STEPS_PER_GAME

NOOP, FIRE = 0, 1
NOOP_MAX = 30
FRAME_SKIP = 4
STACKED_FRAMES = 4

NEXT_LIFE = "next_life"
"""Reset option: the same game goes on with its next life."""


class NoopFireReset(gymnasium.Wrapper):
    """Starts each life with a random number of single-frame no-ops and, where the game has it, FIRE.

    Games with FIRE see 0 to 29 no-ops before it, others 1 to 30 (Mnih et al. 2015, and as EnvPool counts them).
    """

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int = NOOP_MAX) -> None:
        super().__init__(env)
        self._noop_max = noop_max
        self._fire = has_fire(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Resets the game, or only goes on to its next life if `options[NEXT_LIFE]` is set."""
        obs, info = (None, {}) if options and options.get(NEXT_LIFE) else self.env.reset(seed=seed)
        noops = int(self.np_random.integers(0, self._noop_max)) + (0 if self._fire else 1)
        for action in [NOOP] * noops + [FIRE] * self._fire:
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


class LifeFrameStack(FrameStackObservation):
    """A frame stack that keeps its older frames when the same game goes on with its next life."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Fills the stack with the first frame, or pushes it if `options[NEXT_LIFE]` is set."""
        if not (options and options.get(NEXT_LIFE)):
            return super().reset(seed=seed, options=options)
        frame, info = self.env.reset(seed=seed, options=options)
        self.obs_queue.append(frame)
        return np.stack(self.obs_queue), info


class AtariEpisode(gymnasium.Wrapper):
    """Ends an episode with the game, at the step limit of a game and, if `episodic_life`, with each lost life.

    `info["life_lost"]` is true where the game goes on after the episode's end.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodic_life: bool) -> None:
        super().__init__(env)
        self._episodic_life = episodic_life
        self._life_lost = False
        self._lives = 0
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Goes on with the next life after a lost one, unless a seed asks for a fresh game.

        After anything else, such as the time limit of a wrapper around this one, the game is a fresh one.
        """
        new_game = not self._life_lost or seed is not None
        if new_game:
            self._steps = 0
        obs, info = self.env.reset(seed=seed, options={NEXT_LIFE: not new_game})
        self._life_lost = False
        self._lives = self._remaining_lives()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One agent step of four frames."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        truncated = truncated or (self._steps >= MAX_STEPS_PER_GAME and not terminated)
        lives = self._remaining_lives()
        self._life_lost = self._episodic_life and not (terminated or truncated) and 0 < lives < self._lives
        self._lives = lives
        return obs, reward, terminated or self._life_lost, truncated, info | {"life_lost": self._life_lost}

    def _remaining_lives(self) -> int:
        return int(self.unwrapped.ale.lives())  # type: ignore[attr-defined]


def make_game(
    env_id: str,
    max_frames: int,
    render_mode: str | None,
    kwargs: Mapping[str, Any] | None,
    repeat_action_probability: float,
) -> gymnasium.Env[Any, Any]:
    """One game by single frames as ale-py shows them, truncated after `max_frames` if not 0.

    `kwargs` are ale-py's, such as `mode` and `difficulty`. Raises `ConfigError` for one that the task itself sets.
    """
    fixed: dict[str, Any] = {
        "frameskip": 1,
        "repeat_action_probability": repeat_action_probability,
        "full_action_space": False,
        "max_num_frames_per_episode": max_frames,
        "max_episode_steps": None,
        "render_mode": render_mode,
    }
    if taken := set(kwargs or {}) & set(fixed):
        raise ConfigError(f"env.kwargs: {', '.join(sorted(taken))} is part of the Atari task and cannot be changed")
    return gymnasium.make(env_id, **fixed, **(kwargs or {}))


def has_fire(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether the game has the action `FIRE`."""
    return bool(env.unwrapped.get_action_meanings()[FIRE] == "FIRE")  # type: ignore[attr-defined]


def make_atari(
    env_id: str,
    episodic_life: bool,
    noop_max: int = NOOP_MAX,
    render_mode: str | None = None,
    kwargs: Mapping[str, Any] | None = None,
    frames: int = STACKED_FRAMES,
    repeat_action_probability: float = 0.0,
) -> gymnasium.Env[Any, Any]:
    """One Atari game, observations `[frames, 84, 84]` uint8; `info["life_lost"]` as in `AtariEpisode`.

    `kwargs` as in `make_game`.
    """
    # ale-py's limit counts no-ops too; ours is AtariEpisode's.
    env = make_game(env_id, 0, render_mode, kwargs, repeat_action_probability)
    env = NoopFireReset(env, noop_max)
    env = AtariPreprocessing(env, noop_max=0, frame_skip=FRAME_SKIP, screen_size=84, terminal_on_life_loss=False)
    env = LifeFrameStack(env, frames)
    return AtariEpisode(env, episodic_life)
