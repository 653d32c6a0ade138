"""One environment of a run that can be drawn, on machines with and without a display.

gymnasium and PettingZoo draw the environments that they offer. EnvPool draws those that it alone offers, such as
Procgen. Environments in JAX that none of them offers, such as MinAtar, cannot be drawn.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ppo_bench.common.errors import ConfigError, one_line, require
from ppo_bench.configuration.config import Config
from ppo_bench.envs.atari import FRAME_SKIP
from ppo_bench.envs.base import Task, VectorEnv
from ppo_bench.envs.envpool import EnvPoolEnv
from ppo_bench.envs.gymnasium import GymnasiumEnv
from ppo_bench.envs.make import select_observations
from ppo_bench.envs.pettingzoo import PettingZooEnv
from ppo_bench.networks.network import action_spec

NEEDS = "classic control needs pip install 'ppo-bench[video]', MuJoCo needs apt install libegl1 libgl1-mesa-dri"
ATARI_FPS = 60
FPS = 15
"""Frames per second where the environment names no rate: the rate of Procgen, and of Atari with its skipped frames."""


@dataclass(frozen=True)
class Scene:
    """One environment that can be drawn."""

    env: VectorEnv
    draw: Callable[[], np.ndarray]
    """Function that returns the picture `[H, W, 3]` uint8 of the environment's current state."""
    fps: int


def draw_off_screen() -> None:
    """Make MuJoCo and SDL draw in memory, with or without a display; has to precede the first environment."""
    if os.environ.get("MUJOCO_GL", "disable") == "disable":  # trainings that draw nothing set it to this
        os.environ["MUJOCO_GL"] = "egl"
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def open_scene(config: Config, trained: VectorEnv) -> Scene:
    """One environment of a run, with spaces of the sizes of `trained`, which the policy takes.

    `draw_off_screen` has to precede it. Raises `ConfigError` if drawing fails.
    """
    require("av", "video", "video=true")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene = _make_scene(config, trained)
            scene.env.reset([0])
            picture = scene.draw()
        if np.shape(picture)[2:] != (3,) or picture.dtype != np.uint8:
            raise TypeError("its renderer gives no picture of [H, W, 3] bytes")
    except Exception as error:  # whatever the environment's renderer and the libraries below it raise
        said = f"video=true: {config.task.id} cannot be drawn: {one_line(error)}"
        raise ConfigError(said if isinstance(error, NotImplementedError | TypeError) else f"{said}; {NEEDS}") from error
    return scene


def _make_scene(config: Config, trained: VectorEnv) -> Scene:
    """The scene of a run. Raises `TypeError` if neither gymnasium nor EnvPool offers the environment."""
    env, backend, task = config.root.env, config.backend, config.task.with_num_envs(1)
    if backend.name == "pettingzoo":
        drawn = replace(task, kwargs={**task.kwargs, "render_mode": "rgb_array"})
        return _scene_of(PettingZooEnv(drawn, "sync"), task)
    own = ":" in (env.id or "") and backend.name != "gymnasium"  # a class or function of the user's
    if not own and (gymnasium_id := env.id or env.ids.get("gymnasium")):
        named = replace(task, id=gymnasium_id)
        try:
            tried = select_observations(GymnasiumEnv(named, "sync"), named)
            tried.close()
        except ConfigError:
            if env.id is None or backend.name == "gymnasium":
                raise  # else the id belongs to the run's backend, and gymnasium may not know it
        else:
            if _sizes(tried) == _sizes(trained):
                return _scene_of(GymnasiumEnv(named, "sync", render_mode="rgb_array"), named)
    if envpool_id := env.ids.get("envpool") if env.id is None else env.id if "envpool" in backend.name else None:
        pool = EnvPoolEnv(replace(task, id=envpool_id), num_threads=1, render_mode="rgb_array")
        return Scene(select_observations(pool, task), pool.render, FPS)
    raise TypeError("neither gymnasium nor EnvPool offers it with these observations and actions")


def _sizes(env: VectorEnv) -> tuple[object, ...]:
    """Sizes of the observations and actions: gymnasium and EnvPool have environments of one id that differ in them."""
    return env.observation_space.shape, action_spec(env.action_space)


def _scene_of(env: GymnasiumEnv | PettingZooEnv, task: Task) -> Scene:
    fps = ATARI_FPS // FRAME_SKIP if task.atari else env.render_fps
    return Scene(select_observations(env, task), env.render, fps)
