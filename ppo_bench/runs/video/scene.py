"""One environment of a run that can be drawn, on machines with and without a display.

gymnasium and PettingZoo draw the environments that they offer. EnvPool draws those that it alone offers, such as
Procgen. Environments in JAX that none of them offers, such as MinAtar, show their observations if these are pictures.
"""

from __future__ import annotations

import functools
import os
import re
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
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env, select_observations
from ppo_bench.envs.pettingzoo import PettingZooEnv

MUJOCO_NEEDS = "MuJoCo needs apt install libegl1 libgl1-mesa-dri"
ATARI_FPS = 60
FPS = 15
"""Frames per second where the environment names no rate: the rate of Procgen, and of Atari with its skipped frames."""

_HEX = "000000 1f77b4 ff7f0e 2ca02c d62728 9467bd 8c564b e377c2 bcbd22 17becf ffffff"
COLOURS = np.frombuffer(bytes.fromhex(_HEX), np.uint8).reshape(-1, 3)
"""Colours of an empty field and of the kinds of objects in MinAtar's games, which have at most ten."""


@dataclass(frozen=True)
class Scene:
    """One environment that can be drawn."""

    env: VectorEnv
    draw: Callable[[np.ndarray], np.ndarray]
    """Function from an observation `[1, ...]` to the picture `[H, W, 3]` uint8 of the environment's current state."""
    fps: int


def draw_off_screen() -> None:
    """Make MuJoCo and SDL draw in memory, with or without a display; has to precede the first environment."""
    if os.environ.get("MUJOCO_GL", "disable") == "disable":  # trainings that draw nothing set it to this
        os.environ["MUJOCO_GL"] = "egl"
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def open_scene(config: Config) -> Scene:
    """One environment of a run. `draw_off_screen` has to precede it. Raises `ConfigError` if drawing fails."""
    asked = "video=true"
    require("av", "video", asked)
    try:
        make = _scene_maker(config)
    except ConfigError as error:
        # MuJoCo loads its drawing libraries on import; without them no environment can be made.
        hint = f"; {MUJOCO_NEEDS}" if re.search(r"GL|gl[A-Z]", str(error)) else ""
        raise ConfigError(f"{asked}: {error}{hint}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scene = make()
            picture = scene.draw(scene.env.reset([0]).obs)
        if np.shape(picture)[2:] != (3,) or picture.dtype != np.uint8:
            raise TypeError("its renderer gives no picture of [H, W, 3] bytes")
    except Exception as error:  # whatever the environment's renderer and the libraries below it raise
        said = one_line(error)
        needs = f"; classic control needs pip install 'ppo-bench[video]', {MUJOCO_NEEDS}"
        hint = "" if "not implemented" in said.lower() else needs
        raise ConfigError(f"{asked}: {config.task.id} cannot be drawn ({said}){hint}") from error
    return scene


def _scene_maker(config: Config) -> Callable[[], Scene]:
    """The function that makes the scene of a run. Raises `ConfigError` if the environment cannot be drawn."""
    env, backend, task = config.root.env, config.backend, config.task.with_num_envs(1)
    if backend.name == "pettingzoo":
        return functools.partial(_pettingzoo_scene, task)
    own = ":" in (env.id or "") and backend.name != "gymnasium"  # a class or function of the user's
    if not own and (gymnasium_id := env.id or env.ids.get("gymnasium")):
        named = replace(task, id=gymnasium_id)
        try:
            GymnasiumEnv(named, "sync").close()  # an error here has nothing to do with drawing
            return functools.partial(_gymnasium_scene, named)
        except ConfigError:
            if env.id is None or backend.name == "gymnasium":
                raise  # else the id belongs to the run's backend, and gymnasium may not know it
    if envpool_id := env.ids.get("envpool") if env.id is None else env.id if "envpool" in backend.name else None:
        return functools.partial(_envpool_scene, replace(task, id=envpool_id))
    env_shown = to_vector_env(make_env(backend, task))
    if _has_planes(env_shown):
        return lambda: Scene(env_shown, _draw_planes, FPS)
    env_shown.close()
    raise ConfigError(
        f"{task.id} cannot be drawn: neither gymnasium nor EnvPool offers it, and its observations are no pictures"
    )


def _gymnasium_scene(task: Task) -> Scene:
    return _scene_of(GymnasiumEnv(task, "sync", render_mode="rgb_array"), task)


def _pettingzoo_scene(task: Task) -> Scene:
    drawn = replace(task, kwargs={**task.kwargs, "render_mode": "rgb_array"})
    return _scene_of(PettingZooEnv(drawn, "sync"), task)


def _scene_of(env: GymnasiumEnv | PettingZooEnv, task: Task) -> Scene:
    return Scene(
        select_observations(env, task),
        lambda obs: env.render(),
        ATARI_FPS // FRAME_SKIP if task.atari else env.render_fps,
    )


def _envpool_scene(task: Task) -> Scene:
    env = EnvPoolEnv(task, num_threads=1, render_mode="rgb_array")
    return Scene(select_observations(env, task), lambda obs: env.render(), FPS)


def _has_planes(env: VectorEnv) -> bool:
    space = env.observation_space
    return space.dtype == np.bool_ and len(space.shape) == 3 and space.shape[-1] < len(COLOURS)


def _draw_planes(obs: np.ndarray) -> np.ndarray:
    """The picture of one observation `[1, H, W, C]` bool: each field has the colour of the last object kind on it."""
    kinds = np.arange(1, obs.shape[-1] + 1)
    picture: np.ndarray = COLOURS[(obs[0] * kinds).max(-1)]
    return picture
