"""Videos of a training: their content, and that neither videos nor their failures change the training."""

from __future__ import annotations

import json
import signal
import statistics
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.runners.checkpoint import load
from ppo_bench.runs.video import video_recorder
from tests.processes import children, command_line, started, wait_until
from tests.training import rows, timeless, trained

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clone")]

EVERY = 30
RUN = ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=8192", "checkpoint.every_iterations=4"]
WITH_VIDEOS = [*RUN, f"video.every_episodes={EVERY}"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with videos; not to be changed."""
    return trained(tmp_path_factory.mktemp("recorded"), *WITH_VIDEOS)


def files(folder: Path) -> list[Path]:
    """Each video's JSON file and mp4 file, in the order of the checkpoints."""
    return sorted((folder / "evaluations").iterdir())


# --- Beside a training ------------------------------------------------------------------------------------------------


def test_videos_change_nothing_of_the_run(recorded: Path, tmp_path: Path) -> None:
    plain = trained(tmp_path, *RUN)
    assert recorded.relative_to(recorded.parents[2]) == plain.relative_to(tmp_path)
    assert timeless(recorded) == timeless(plain)
    assert (recorded / "episodes.jsonl").read_bytes() == (plain / "episodes.jsonl").read_bytes()
    newest = [load(folder / "checkpoints/iteration_00000016") for folder in (recorded, plain)]
    own = {"wall_seconds": 0, "metrics_mark": 0, "video_episodes": 0}
    assert newest[0].loop | own == newest[1].loop | own
    for name, array in newest[0].arrays.items():
        assert_array_equal(array, newest[1].arrays[name], name)


def test_a_video_is_made_at_the_first_checkpoint_after_so_many_episodes(recorded: Path) -> None:
    episodes = np.cumsum([row["episodes"] for row in rows(recorded)])
    expected, last = [], 0
    for iteration in (4, 8, 12, 16):
        if episodes[iteration - 1] - last >= EVERY:
            last = episodes[iteration - 1]
            expected += [f"iteration_{iteration:08d}"] * 2
    assert len(expected) >= 4
    assert [path.name.partition("-")[0] for path in files(recorded)] == expected
    assert {path.suffix for path in files(recorded)} == {".json", ".mp4"}
    for path in (recorded / "evaluations").glob("*.json"):
        about = json.loads(path.read_text())
        assert about["global_step"] == 512 * about["iteration"]
        assert not about["greedy"]


def test_episodes_count_from_the_latest_video_of_a_resumed_run() -> None:
    first = video_recorder.VideoRecorder(100, 0)
    assert [first.plan(episodes) for episodes in (60, 110)] == [0, 110]
    resumed = video_recorder.VideoRecorder(100, 110)
    assert [resumed.plan(episodes) for episodes in (200, 210)] == [110, 210]
    assert video_recorder.VideoRecorder(0, 0).plan(1_000) == 0


def test_the_seconds_of_a_video_are_taken_from_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each took a thousand, of which the clock knows nothing."""
    monkeypatch.setattr(video_recorder.VideoRecorder, "record", lambda *arguments: 1000.0)
    folder = trained(tmp_path, *RUN)
    seconds = [row["wall_seconds"] for row in rows(folder)]
    assert [-round(second, -3) for second in seconds] == [1000.0 * (k // 4) for k in range(16)]
    result = json.loads((folder / "result.json").read_text())
    assert result["steady_sps"] == statistics.median(row["sps"] for row in rows(folder)) > 0


# --- Trouble ----------------------------------------------------------------------------------------------------------


def troubled(trouble: str) -> list[str]:
    wrapper = "{_target_:tests.videos.Troubled,trouble:" + trouble + "}"
    return ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=2048", f"env.wrappers=[{wrapper}]"]


@pytest.mark.parametrize(
    ("trouble", "why"), [("raise", "RuntimeError: out of paint"), ("kill", "killed by SIGKILL"), ("hang", "given up")]
)
def test_a_video_that_fails_costs_a_warning_and_is_the_last(
    trouble: str, why: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "hang":
        monkeypatch.setattr(video_recorder, "LONGEST_SECONDS", 6.0)
    often = [*troubled(trouble), "total_timesteps=4096", "checkpoint.every_iterations=4", "video.every_episodes=1"]
    folder = trained(tmp_path, *often)
    (warning,) = [line for line in capfd.readouterr().err.splitlines() if "warning: no video after " in line]
    assert why in warning
    assert (folder / "result.json").exists()
    assert not list(folder.glob("evaluations/*.mp4"))


def test_a_video_ends_where_its_training_is_stopped(tmp_path: Path) -> None:
    often = [*troubled("hang"), "checkpoint.every_iterations=2", "video.every_episodes=1", f"outputs={tmp_path}"]
    with started(*often) as run:
        wait_until(run, lambda: videos_being_made(run.pid))
        made = videos_being_made(run.pid)
        run.send_signal(signal.SIGTERM)
        assert run.wait() == 130
    assert not any(is_alive(process) for process in made)
    assert not list(tmp_path.rglob("iteration_*.mp4"))


def videos_being_made(training: int) -> list[int]:
    return [child for child in children(training) if "ppo_bench.evaluate" in command_line(child)]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
