"""Frames of videos: environments rendered by gymnasium or by EnvPool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.gymnasium import GymnasiumEnv
from ppo_bench.envs.random_play import random_actions
from ppo_bench.runs.video.record_video import open_mp4
from ppo_bench.runs.video.scene import Scene, draw_off_screen, open_scene
from tests.videos import frames_of

pytestmark = pytest.mark.slow


def drawn(overrides: str, path: Path, steps: int = 12) -> tuple[list[np.ndarray], np.ndarray, Scene]:
    """Observations and frames of random play."""
    draw_off_screen()
    scene = open_scene(load_config([*overrides.split(), "device=cpu"]))
    rng = np.random.default_rng(0)
    with open_mp4(path, scene.fps) as add:
        seen = [np.array(scene.env.reset([3]).obs)]
        add(scene.draw())
        for _ in range(steps):
            seen.append(np.array(scene.env.step(random_actions(scene.env, rng)).obs))
            add(scene.draw())
    scene.env.close()
    return seen, frames_of(path), scene


def test_the_camera_follows_a_robot_that_runs_away() -> None:
    draw_off_screen()
    env = GymnasiumEnv(load_config(["env=hopper", "ppo.num_envs=1"]).task, "sync", "rgb_array")
    env.reset([3])
    robot: Any = env._envs._envs.envs[0].unwrapped
    robot.set_state(np.array([50.0, *robot.data.qpos[1:]]), robot.data.qvel)
    red, _, blue = np.moveaxis(env.render().astype(int), -1, 0)
    env.close()
    assert np.count_nonzero(red > blue + 40) > 1000  # the floor and the sky are blue and green


@pytest.mark.parametrize(
    ("overrides", "size", "fps"),
    [
        ("env=cartpole backend=envpool", (400, 600), 50),
        ("env=cartpole backend=gymnasium env.kwargs={render_mode:human}", (400, 600), 50),  # drawn to be recorded
        ("env=breakout backend=envpool", (210, 160), 15),
        ("env.id=LunarLander-v3 backend=envpool", (400, 600), 15),  # gymnasium lacks Box2D
    ],
)
def test_environments_are_drawn_by_gymnasium_or_else_by_envpool(
    overrides: str, size: tuple[int, int], fps: int, tmp_path: Path
) -> None:
    _, frames, scene = drawn(overrides, tmp_path / "video.mp4")
    assert frames.shape == (13, *size, 3)
    assert scene.fps == fps
    assert frames[0].std() > 5
    assert (frames[-1] != frames[0]).any()
