"""Wrappers that give Atari on gymnasium the same task as on EnvPool; the two agree frame by frame.

Gymnasium's `AtariPreprocessing` skips, pools and scales frames. The wrappers here add FIRE at the start and episodes
that end with a life while the same game continues. Gymnasium's own `terminal_on_life_loss` is another task: it starts a
new game with every life.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import MAX_STEPS_PER_GAME, Atari

NOOP, FIRE = 0, 1
NOOP_MAX = 30
FRAME_SKIP = 4

NEXT_LIFE = "next_life"
"""Reset option: continue the same game with its next life."""


class NoopFireReset(gymnasium.Wrapper):
    """A wrapper that starts each life with a random number of single-frame no-ops and, if the game has it, FIRE.

    Games with FIRE get 0 to 29 no-ops before it, others 1 to 30 (Mnih et al. 2015; EnvPool counts the same way).
    """

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int = NOOP_MAX) -> None:
        super().__init__(env)
        self._noop_max = noop_max
        self._fire = has_fire(env)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset the game, or continue with its next life if `options[NEXT_LIFE]` is set."""
        obs, info = (None, {}) if options and options.get(NEXT_LIFE) else self.env.reset(seed=seed)
        noops = int(self.np_random.integers(0, self._noop_max)) + (0 if self._fire else 1)
        for action in [NOOP] * noops + [FIRE] * self._fire:
            obs, _, terminated, truncated, info = self.env.step(action)
            if terminated or truncated:
                obs, info = self.env.reset()
        return obs, info


class LifeFrameStack(FrameStackObservation):
    """A frame stack that keeps its older frames when the same game continues with its next life."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Fill the stack with the first frame, or only append the frame if `options[NEXT_LIFE]` is set."""
        if not (options and options.get(NEXT_LIFE)):
            return super().reset(seed=seed, options=options)
        frame, info = self.env.reset(seed=seed, options=options)
        self.obs_queue.append(frame)
        return np.stack(self.obs_queue), info


class Lives(gymnasium.Wrapper):
    """A wrapper that ends an episode with the game and, if `episodic_life`, with each lost life.

    `info["life_lost"]` is true where the game continues after the end of the episode.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], episodic_life: bool) -> None:
        super().__init__(env)
        self._episodic_life = episodic_life
        self._life_lost = False
        self._lives = 0

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take one agent step of four frames."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        truncated = (truncated or self._at_limit()) and not terminated
        lives = self._remaining_lives()
        self._life_lost = self._episodic_life and not (terminated or truncated) and 0 < lives < self._lives
        self._lives = lives
        return obs, reward, terminated or self._life_lost, truncated, info | {"life_lost": self._life_lost}

    def _at_limit(self) -> bool:
        """Whether the step is the last one of the game, whatever the game says."""
        return False

    def _start_episode(self) -> None:
        """Note that an episode begins."""
        self._life_lost = False
        self._lives = self._remaining_lives()

    def _remaining_lives(self) -> int:
        return int(self.unwrapped.ale.lives())  # type: ignore[attr-defined]


class AtariEpisode(Lives):
    """`Lives` in which a game ends at its step limit, too."""

    _steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Continue with the next life after a lost one, unless a seed is given; in all other cases start a new game.

        One of these cases is the time limit of a wrapper around this one.
        """
        new_game = not self._life_lost or seed is not None
        if new_game:
            self._steps = 0
        obs, info = self.env.reset(seed=seed, options={NEXT_LIFE: not new_game})
        self._start_episode()
        return obs, info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `Lives.step`; counts the game's steps."""
        self._steps += 1
        return super().step(action)

    def _at_limit(self) -> bool:
        return self._steps >= MAX_STEPS_PER_GAME


def make_game(
    env_id: str, rules: Atari, max_frames: int, render_mode: str | None, kwargs: Mapping[str, Any]
) -> gymnasium.Env[Any, Any]:
    """A game of ale-py without preprocessing, one frame per step, truncated after `max_frames` unless that is 0.

    `kwargs` are arguments of ale-py, such as `mode` and `difficulty`. Raises `ConfigError` for one that the task fixes.
    """
    fixed: dict[str, Any] = {
        "frameskip": 1,
        "repeat_action_probability": rules.repeat_action_probability,
        "full_action_space": False,
        "max_num_frames_per_episode": max_frames,
        "max_episode_steps": None,
        "render_mode": render_mode,
    }
    if conflicts := set(kwargs) & set(fixed):
        raise ConfigError(f"env.kwargs: {', '.join(sorted(conflicts))} is part of the Atari task and cannot be changed")
    return gymnasium.make(env_id, **fixed, **kwargs)


def has_fire(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether the game has the action `FIRE`."""
    return bool(env.unwrapped.get_action_meanings()[FIRE] == "FIRE")  # type: ignore[attr-defined]


def make_atari(
    env_id: str,
    rules: Atari,
    render_mode: str | None = None,
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    noop_max: int = NOOP_MAX,
) -> gymnasium.Env[Any, Any]:
    """An Atari game with observations `[frames, 84, 84]` uint8; `info["life_lost"]` as in `AtariEpisode`.

    `kwargs` as in `make_game`.
    """
    # The limit of ale-py would count no-ops too, so AtariEpisode has its own.
    env = make_game(env_id, rules, 0, render_mode, kwargs)
    env = NoopFireReset(env, noop_max)
    env = AtariPreprocessing(env, noop_max=0, frame_skip=FRAME_SKIP, screen_size=84, terminal_on_life_loss=False)
    env = LifeFrameStack(env, rules.frames)
    return AtariEpisode(env, rules.episodic_life)
