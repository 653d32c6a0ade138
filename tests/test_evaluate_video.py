"""Videos of evaluations: their frames and their renderers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.commands.evaluate import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from tests.evaluations import ON_CPU, SMALL, config_with, evaluated
from tests.training import trained
from tests.videos import frames_of

pytestmark = pytest.mark.slow


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
