"""Frames of videos: environments rendered by gymnasium or by EnvPool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.gymnasium import GymnasiumEnv
from ppo_bench.envs.random_play import random_actions
from ppo_bench.runs.video.record_video import open_mp4
from ppo_bench.runs.video.scene import COLOURS, Scene, draw_off_screen, open_scene
from tests.training import ENVIRONMENT, ROOT
from tests.videos import frames_of

pytestmark = pytest.mark.slow


def drawn(overrides: str, path: Path, steps: int = 12) -> tuple[list[np.ndarray], np.ndarray, Scene]:
    """Observations and frames of random play."""
    draw_off_screen()
    scene = open_scene(load_config([*overrides.split(), "device=cpu"]))
    rng = np.random.default_rng(0)
    with open_mp4(path, scene.fps) as add:
        seen = [np.array(scene.env.reset([3]).obs)]
        add(scene.draw(seen[0]))
        for _ in range(steps):
            seen.append(np.array(scene.env.step(random_actions(scene.env, rng)).obs))
            add(scene.draw(seen[-1]))
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
        ("env=acrobot backend=device framework=jax_xla", (500, 500), 15),
        ("env=pendulum backend=envpool_xla framework=jax_xla", (500, 500), 30),
        ("env=breakout backend=envpool", (210, 160), 15),
        ("env=pong backend=gymnasium", (210, 160), 15),
        ("env.id=LunarLander-v3 backend=envpool", (400, 600), 15),  # gymnasium lacks Box2D
        ("env.id=Breakout-v5 env.atari={episodic_life:true,reward_clip:true} backend=envpool", (210, 160), 15),
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


def test_dm_control_is_drawn(tmp_path: Path) -> None:
    """In a process of its own, as videos are: dm_control decides how to draw as it is imported."""
    code = """
import sys
from pathlib import Path
from tests.test_video_drawn import drawn
_, frames, scene = drawn("env=dmc_cheetah_run backend=envpool", Path(sys.argv[1]))
print(frames.shape, scene.fps, frames[0].std() > 5, (frames[-1] != frames[0]).any())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "video.mp4")]
    run = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert run.stdout == "(13, 240, 320, 3) 100 True True\n", run.stderr  # its step is 0.01 s


def test_procgen_shows_what_the_policy_sees(tmp_path: Path) -> None:
    seen, frames, _ = drawn("env=starpilot", tmp_path / "video.mp4")
    assert frames.shape == (13, 256, 256, 3)
    for obs, frame in zip(seen, frames, strict=True):
        enlarged = obs[0].transpose(1, 2, 0).repeat(4, axis=0).repeat(4, axis=1)
        assert np.abs(enlarged.astype(int) - frame).mean() < 8  # but for compression


def test_minatar_shows_its_objects_in_their_colours(tmp_path: Path) -> None:
    """Three rows of bricks (the fourth kind of object) from the second row on, the paddle (the first) in the last."""
    _, frames, _ = drawn("env=minatar_breakout", tmp_path / "video.mp4")
    assert frames.shape == (13, 250, 250, 3)
    middles = frames[0, 12::25, 12::25].astype(int)
    expected = np.zeros((10, 10, 3), int)
    expected[1:4] = COLOURS[4]
    assert_allclose(middles[1:4], expected[1:4], atol=12)
    paddle = np.abs(middles[9] - COLOURS[1]).max(-1) < 12
    assert paddle.sum() == 1
    assert_allclose(middles[9][~paddle], 0, atol=12)


def test_frames_are_enlarged_by_whole_factors_and_cut_to_even_sides(tmp_path: Path) -> None:
    with open_mp4(tmp_path / "video.mp4", 15) as add:
        add(np.full((301, 401, 3), 200, np.uint8))
    assert frames_of(tmp_path / "video.mp4").shape == (1, 300, 400, 3)
