"""Frames of videos: environments rendered by gymnasium or by EnvPool, and whole episodes of evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.commands.evaluate import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.gymnasium import GymnasiumEnv
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.envs.random_play import random_actions
from ppo_bench.runs.video.record_video import open_mp4
from ppo_bench.runs.video.scene import Scene, draw_off_screen, open_scene
from tests.evaluations import ON_CPU, SMALL, config_with, evaluated
from tests.training import trained
from tests.videos import frames_of

pytestmark = pytest.mark.slow


def drawn(overrides: str, path: Path, steps: int = 12) -> tuple[list[np.ndarray], np.ndarray, Scene]:
    """Observations and frames of random play."""
    draw_off_screen()
    config = load_config([*overrides.split(), "device=cpu"])
    scene = open_scene(config, to_vector_env(make_env(config.backend, config.task.with_num_envs(1))))
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


def only_frames(evaluation: dict[str, Any], folder: Path) -> np.ndarray:
    """Every frame of the only video in a folder, `[T, H, W, 3]`."""
    import av

    (path,) = folder.glob("evaluations/*.mp4")
    with av.open(str(path)) as container:
        assert float(container.streams.video[0].average_rate or 0) == evaluation["video"]["fps"]
    return frames_of(path)


def test_the_video_shows_the_first_episode_frame_by_frame(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluated(run, "framework=jax_xla", "episodes=2", "video=true")
    video = found["video"]
    assert (video["return"], video["length"]) == (found["returns"][0], found["lengths"][0])
    frames = only_frames(found, run)
    assert len(frames) == video["frames"] == video["length"] + 1
    assert frames.shape[1:] == (400, 600, 3)
    assert frames[0].std() > 5  # a cart and a pole on white
    assert np.abs(frames[-1].astype(int) - frames[0]).max() > 100  # which have moved
    assert sorted(path.suffix for path in run.glob("evaluations/*")) == [".json", ".mp4"]
    mp4, report = capsys.readouterr().out.splitlines()[-2:]
    assert (Path(mp4).suffix, Path(mp4).with_suffix(".json")) == (".mp4", Path(report))


def test_a_video_of_breakout_shows_one_game_of_five_lives(tmp_path: Path) -> None:
    folder = trained(tmp_path, "env=breakout", "backend=envpool", *SMALL)
    found = evaluated(folder, "backend=gymnasium", "episodes=1", "video=true")
    frames = only_frames(found, folder)
    assert found["lengths"][0] > 5 * 15
    # After each of four lost lives a step that no policy takes starts the next life.
    assert len(frames) == found["lengths"][0] + 1 + 4
    assert frames.shape[1:] == (210, 160, 3)


def test_what_nothing_can_draw_is_evaluated_and_not_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = load_config(["backend=device", "framework=jax_xla", "~env.ids.gymnasium", "~env.ids.envpool"]).resolved
    config_with(run, env=elsewhere["env"], backend=elsewhere["backend"])
    assert evaluated(run, "episodes=1")["backend"] == "device"
    capsys.readouterr()
    assert exit_code(main, [str(run), ON_CPU, "episodes=1", "seed=5", "video=true"]) == 2
    assert "video=true: CartPole-v1 cannot be drawn: neither gymnasium nor EnvPool" in capsys.readouterr().err
    assert len(list(run.glob("evaluations/*"))) == 1
