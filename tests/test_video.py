"""Films of a training: what they show, and that neither they nor their failures change the training."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.commands.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.random_play import random_actions
from ppo_bench.runners.checkpoint import load
from ppo_bench.runs.trackers.mirror import videos
from ppo_bench.runs.video import filmer
from ppo_bench.runs.video.filmed import COLOURS, FilmedEnv, draw_off_screen, film
from ppo_bench.runs.video.mp4 import Mp4

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}
EVERY = 30
RUN = ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=8192", "checkpoint.every_iterations=4"]
FILMED = [*RUN, f"video.every_episodes={EVERY}"]


@pytest.fixture(autouse=True)
def clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the processes of films use the package that is tested."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="module")
def filmed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with films; not to be changed."""
    return trained(tmp_path_factory.mktemp("filmed"), *FILMED)


def trained(outputs: Path, *overrides: str) -> Path:
    assert exit_code(main, [*overrides, f"outputs={outputs}"]) == 0
    return folder_of(outputs, *overrides)


def folder_of(outputs: Path, *overrides: str) -> Path:
    return load_config([*overrides, f"outputs={outputs}"]).run_folder


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def frames_of(path: Path) -> np.ndarray:
    """`[T, H, W, 3]` uint8."""
    import av

    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def films(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "videos").iterdir())


# --- Beside a training ------------------------------------------------------------------------------------------------


def test_films_change_nothing_of_the_run(filmed: Path, tmp_path: Path) -> None:
    plain = trained(tmp_path, *RUN)
    assert filmed.relative_to(filmed.parents[2]) == plain.relative_to(tmp_path)
    timeless = [
        [{k: v for k, v in row.items() if k not in ("wall_seconds", "sps")} for row in rows(folder / "metrics.jsonl")]
        for folder in (filmed, plain)
    ]
    assert timeless[0] == timeless[1]
    assert (filmed / "episodes.jsonl").read_bytes() == (plain / "episodes.jsonl").read_bytes()
    newest = [load(folder / "checkpoints/iteration_00000016") for folder in (filmed, plain)]
    assert newest[0].loop | {"wall_seconds": 0, "metrics_mark": 0} == newest[1].loop | {
        "wall_seconds": 0,
        "metrics_mark": 0,
    }
    for name, array in newest[0].arrays.items():
        assert_array_equal(array, newest[1].arrays[name], name)


def test_a_film_is_made_at_the_first_checkpoint_after_so_many_episodes(filmed: Path) -> None:
    ended = np.cumsum([row["episodes"] for row in rows(filmed / "metrics.jsonl")])[3::4]
    expected: list[int] = []
    for episodes in ended:
        if episodes - (expected or [0])[-1] >= EVERY:
            expected.append(int(episodes))
    assert len(expected) >= 2
    assert films(filmed) == [f"episode_{n:08d}.{kind}" for n in expected for kind in ("json", "mp4")]


def test_a_film_shows_one_episode_from_start_to_end(filmed: Path) -> None:
    for path in (filmed / "videos").glob("*.mp4"):
        about = json.loads(path.with_suffix(".json").read_text())
        frames = frames_of(path)
        assert about["global_step"] == 512 * about["iteration"]
        assert about["return"] == about["length"]
        assert len(frames) == about["frames"] == about["length"] + 1
        assert frames.shape[1:] == (400, 600, 3)
        assert np.abs(frames[-1].astype(int) - frames[0]).max() > 100  # the pole has fallen


def test_the_seconds_of_a_film_are_taken_from_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each took a thousand, of which the clock knows nothing."""
    monkeypatch.setattr(filmer.Filmer, "film", lambda *arguments: 1000.0)
    folder = trained(tmp_path, *RUN)
    seconds = [row["wall_seconds"] for row in rows(folder / "metrics.jsonl")]
    assert [-round(second, -3) for second in seconds] == [1000.0 * (k // 4) for k in range(16)]
    result = json.loads((folder / "result.json").read_text())
    assert result["steady_sps"] == statistics.median(row["sps"] for row in rows(folder / "metrics.jsonl")) > 0


def test_trackers_are_given_the_films_with_their_steps(filmed: Path) -> None:
    found = videos(filmed)
    assert [path.name for path, _ in found] == [name for name in films(filmed) if name.endswith(".mp4")]
    assert [step for _, step in found] == [
        json.loads(path.with_suffix(".json").read_text())["global_step"] for path, _ in found
    ]


def test_a_resumed_run_films_nothing_twice(filmed: Path, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, *FILMED)
    shutil.copytree(filmed, folder, symlinks=True)
    before = {path: path.stat().st_mtime_ns for path in (folder / "videos").iterdir()}
    (folder / "result.json").unlink()
    shutil.rmtree(folder / "checkpoints/iteration_00000016")
    assert trained(tmp_path, *FILMED) == folder
    assert (folder / "result.json").exists()
    assert {path: path.stat().st_mtime_ns for path in (folder / "videos").iterdir()} == before


# --- Trouble ----------------------------------------------------------------------------------------------------------


def troubled(trouble: str) -> list[str]:
    wrapper = "{_target_:tests.films.Troubled,trouble:" + trouble + "}"
    return ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=2048", f"env.wrappers=[{wrapper}]"]


@pytest.mark.parametrize(
    ("trouble", "why"), [("raise", "RuntimeError: out of paint"), ("kill", "killed by SIGKILL"), ("hang", "given up")]
)
def test_a_film_that_fails_costs_a_warning(
    trouble: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "hang":
        monkeypatch.setattr(filmer, "LONGEST_SECONDS", 20.0)
    often = [*troubled(trouble), "checkpoint.every_iterations=4", "video.every_episodes=1"]
    folder = trained(tmp_path, *often)
    (warning,) = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert "warning: no film after " in warning
    assert why in warning
    assert (folder / "result.json").exists()
    assert not list(folder.glob("videos/*.json")) + list(folder.glob("videos/*.mp4"))


def test_a_folder_that_cannot_be_made_costs_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = folder_of(tmp_path, *FILMED)
    folder.mkdir(parents=True)
    (folder / "videos").write_text("mine")
    trained(tmp_path, *FILMED)
    assert "warning: no film after " in capfd.readouterr().err
    assert (folder / "videos").read_text() == "mine"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_a_film_ends_with_its_training(number: signal.Signals, tmp_path: Path) -> None:
    often = [*troubled("hang"), "checkpoint.every_iterations=2", "video.every_episodes=1", f"outputs={tmp_path}"]
    with subprocess.Popen(
        [sys.executable, "-m", "ppo_bench", *often], env=ENVIRONMENT, stdout=subprocess.DEVNULL
    ) as run:
        while not (made := films_being_made(run.pid)):
            assert run.poll() is None
            time.sleep(0.05)
        run.send_signal(number)
        assert run.wait() == (130 if number == signal.SIGTERM else -signal.SIGKILL)
    deadline = time.monotonic() + 120
    while any(is_alive(process) for process in made):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not list(tmp_path.rglob("videos/*.mp4"))


def films_being_made(training: int) -> list[str]:
    """The processes of a training's films, less that which tries whether there can be any."""
    children = Path(f"/proc/{training}/task/{training}/children").read_text().split()
    return [child for child in children if "episode_" in Path(f"/proc/{child}/cmdline").read_text()]


def is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


UNDRAWN = {
    "backend=envpool env.id=Catch-v0": "Catch-v0 cannot be drawn (render not implemented for this environment)",
    "backend=jax framework=jax_xla ~env.ids.gymnasium ~env.ids.envpool": "CartPole-v1 cannot be drawn: neither "
    "gymnasium nor EnvPool offers it, and its observations are no pictures",
}


@pytest.mark.parametrize(("text", "why"), UNDRAWN.items(), ids=list(UNDRAWN))
def test_what_cannot_be_drawn_is_one_line_before_anything_is_written(
    text: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*text.split(), "device=cpu", "total_timesteps=2048", "video.every_episodes=7", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 2
    error = capfd.readouterr().err
    assert f"ppo_bench: video.every_episodes=7: {why}" in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


# --- What is drawn, and by what ---------------------------------------------------------------------------------------


def drawn(overrides: str, path: Path, steps: int = 12) -> tuple[list[np.ndarray], np.ndarray, FilmedEnv]:
    """Observations and frames of random play."""
    draw_off_screen()
    env = film(load_config([*overrides.split(), "device=cpu"]), path, "video=true")
    rng = np.random.default_rng(0)
    seen = [np.array(env.reset([3]).obs)]
    played: VectorEnv = env
    for _ in range(steps):
        seen.append(np.array(env.step(random_actions(played, rng)).obs))
    env.mp4.finish()
    env.close()
    return seen, frames_of(path), env


@pytest.mark.parametrize(
    ("overrides", "size", "fps"),
    [
        ("env=cartpole backend=envpool", (400, 600), 50),
        ("env=acrobot backend=jax framework=jax_xla", (500, 500), 15),
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
    _, frames, env = drawn(overrides, tmp_path / "film.mp4")
    assert frames.shape == (13, *size, 3)
    assert env.mp4.fps == fps
    assert frames[0].std() > 5
    assert (frames[-1] != frames[0]).any()


def test_dm_control_is_drawn(tmp_path: Path) -> None:
    """In a process of its own, as films are: dm_control decides how to draw as it is imported."""
    code = """
import sys
from pathlib import Path
from tests.test_video import drawn
_, frames, env = drawn("env=dmc_cheetah_run backend=envpool", Path(sys.argv[1]))
print(frames.shape, env.mp4.fps, frames[0].std() > 5, (frames[-1] != frames[0]).any())
"""
    command = [sys.executable, "-c", code, str(tmp_path / "film.mp4")]
    run = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert run.stdout == "(13, 240, 320, 3) 100 True True\n", run.stderr  # its step is 0.01 s


def test_procgen_shows_what_the_policy_sees(tmp_path: Path) -> None:
    seen, frames, _ = drawn("env=starpilot", tmp_path / "film.mp4")
    assert frames.shape == (13, 256, 256, 3)
    for obs, frame in zip(seen, frames, strict=True):
        enlarged = obs[0].transpose(1, 2, 0).repeat(4, axis=0).repeat(4, axis=1)
        assert np.abs(enlarged.astype(int) - frame).mean() < 8  # but for compression


def test_minatar_shows_its_objects_in_their_colours(tmp_path: Path) -> None:
    """Three rows of bricks (the fourth kind of object) from the second row on, the paddle (the first) in the last."""
    _, frames, _ = drawn("env=minatar_breakout", tmp_path / "film.mp4")
    assert frames.shape == (13, 250, 250, 3)
    middles = frames[0, 12::25, 12::25].astype(int)
    expected = np.zeros((10, 10, 3), int)
    expected[1:4] = COLOURS[4]
    assert_allclose(middles[1:4], expected[1:4], atol=12)
    paddle = np.abs(middles[9] - COLOURS[1]).max(-1) < 12
    assert paddle.sum() == 1
    assert_allclose(middles[9][~paddle], 0, atol=12)


def test_frames_are_enlarged_by_whole_factors_and_cut_to_even_sides(tmp_path: Path) -> None:
    mp4 = Mp4(tmp_path / "film.mp4", 15)
    mp4.add(np.full((301, 401, 3), 200, np.uint8))
    mp4.finish()
    assert frames_of(tmp_path / "film.mp4").shape == (1, 300, 400, 3)
