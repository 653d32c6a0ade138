"""Trackers show the content of a run's files, and a tracker that fails causes a warning, never a failed run."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ppo_bench.commands.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.trackers import mirrors
from ppo_bench.runs.trackers.mirror import tagged, tags_of
from ppo_bench.runs.trackers.tensorboard import Tensorboard
from tests.mirrored import events, history, mirrors_of, wandb_records
from tests.processes import TRAIN, count_rows, started, wait_until
from tests.trackers import Troubled
from tests.training import ENVIRONMENT, GYM, ROOT, SHORT, rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clone")]

BOTH = ["tracker=[tensorboard,wandb]", "tracker.wandb.mode=offline", "tracker.wandb.project=test"]
CLEANRL = {
    *("charts/episodic_return", "charts/episodic_length", "charts/SPS", "charts/learning_rate"),
    *("losses/value_loss", "losses/policy_loss", "losses/entropy", "losses/old_approx_kl", "losses/approx_kl"),
    *("losses/clipfrac", "losses/explained_variance"),
}
OWN = {"losses/gradient_norm", "charts/masked_fraction"}
"""What CleanRL has no tag for."""


def test_a_run_that_is_killed_and_resumed_appears_once_in_every_tracker(tmp_path: Path) -> None:
    run = [*GYM, "total_timesteps=30_720", "checkpoint.every_iterations=10", f"outputs={tmp_path}"]
    folder = load_config(run).run_folder
    with started(*BOTH, *run, stderr=subprocess.DEVNULL) as killed:
        wait_until(killed, (folder / "checkpoints" / "iteration_00000020").exists)
    resumed = subprocess.run([*TRAIN, *BOTH, *run], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert resumed.stdout == f"{folder}\n"
    assert all(line.startswith("ppo_bench: ") for line in resumed.stderr.splitlines())
    assert "warning" not in resumed.stderr

    metrics = rows(folder)
    steps = [row["global_step"] for row in metrics]
    assert steps == list(range(512, 30_721, 512))
    board = events(folder)
    assert set(board.Tags()["scalars"]) == CLEANRL | OWN
    for tag, name in (
        ("losses/value_loss", "value_loss"),
        ("losses/clipfrac", "clip_fraction"),
        ("charts/SPS", "sps"),
        ("charts/masked_fraction", "masked_fraction"),
    ):
        assert [event.step for event in board.Scalars(tag)] == steps
        assert [event.value for event in board.Scalars(tag)] == pytest.approx([row[name] for row in metrics])
    times = [event.wall_time for event in board.Scalars("charts/SPS")]
    assert times[-1] - times[0] == pytest.approx(metrics[-1]["wall_seconds"] - metrics[0]["wall_seconds"])
    config = board.Tensors("run")[0].tensor_proto.string_val[0].decode()
    assert '"total_timesteps": 30720' in config

    first, second = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    assert first.name == second.name
    logged = history(second)
    assert [row["_step"] for row in logged] == steps == [row["global_step"] for row in logged]
    assert set(logged[0]) >= CLEANRL | OWN
    assert [row["losses/clipfrac"] for row in logged] == pytest.approx([row["clip_fraction"] for row in metrics])
    (about,) = (r.run for r in wandb_records(second) if r.WhichOneof("record_type") == "run")
    assert (about.project, about.run_group) == ("test", folder.parent.name)
    configured = {entry.key: json.loads(entry.value_json) for entry in about.config.update}
    assert configured["config"]["total_timesteps"] == 30720
    assert mirrors_of(folder) == []
    assert load_config([*BOTH, *run]).run_folder == folder
    assert not list(folder.rglob("*.pkl")) + list(folder.rglob("*.pt"))


def test_rows_appear_under_the_tags_of_their_run() -> None:
    row = {"global_step": 512, "sps": 9.0, "entropy": 0.5, "clip_fraction": 0.25, "episodic_return": None, "own": 2.0}
    run = {"metrics": {"entropy": "losses/entropy", "own": "losses/mine"}}
    assert tagged(row, tags_of(run)) == {"charts/SPS": 9.0, "losses/entropy": 0.5, "losses/mine": 2.0}


def test_a_tensorboard_that_looks_on_sees_every_step_once_when_a_run_resumes(tmp_path: Path) -> None:
    def mirror(last: int) -> None:
        opened = Tensorboard().open(tmp_path, {"started": "2026-01-01T00:00:00+00:00", "metrics": {}})
        opened.write([{"global_step": step, "sps": float(step), "wall_seconds": 0.1} for step in range(1, last + 1)])
        opened.close()

    (tmp_path / "tensorboard").mkdir()
    mirror(10)
    board = events(tmp_path)
    assert [event.step for event in board.Scalars("charts/SPS")] == list(range(1, 11))
    mirror(15)
    board.Reload()
    assert [event.step for event in board.Scalars("charts/SPS")] == list(range(1, 16))
    assert [event.step for event in events(tmp_path).Scalars("charts/SPS")] == list(range(1, 16))


def test_a_finished_run_is_mirrored_afterwards_with_its_videos(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from ppo_bench.commands.evaluate import main as evaluate

    run = [*GYM, *SHORT, f"outputs={tmp_path}"]
    assert exit_code(main, run) == 0
    folder = load_config(run).run_folder
    assert exit_code(evaluate, [str(folder), "episodes=1", "video=true"]) == 0
    capfd.readouterr()
    assert exit_code(main, [*BOTH, *run]) == 0
    assert "warning" not in capfd.readouterr().err
    (video,) = folder.glob("evaluations/*.mp4")
    board = events(folder)
    assert [event.step for event in board.Scalars("charts/SPS")] == [512, 1024]
    (image,) = board.Images(f"videos/{video.stem}")
    assert image.encoded_image_string.startswith(b"GIF89a")
    assert image.step == 1024
    (copied,) = folder.glob("wandb/offline-run-*/files/media/videos/videos/*.mp4")
    assert copied.read_bytes() == video.read_bytes()
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    *logged, last = history(file)
    assert [row["_step"] for row in logged] == [row["global_step"] for row in logged] == [512, 1024]
    assert not CLEANRL & set(last)  # the video's row is its own
    assert last["global_step"] == 1024


def test_every_seed_of_a_program_has_events_of_its_own(tmp_path: Path) -> None:
    run = ["env=cartpole", "framework=jax_xla", "backend=jax", "total_timesteps=1024", f"outputs={tmp_path}"]
    assert exit_code(main, [*run, "num_seeds=2", "tracker=tensorboard"]) == 0
    for seed in (1, 2):
        folder = load_config([*run, f"seed={seed}"]).run_folder
        scalars = events(folder).Scalars("losses/value_loss")
        assert [event.step for event in scalars] == [512, 1024]
        assert [event.value for event in scalars] == pytest.approx([row["value_loss"] for row in rows(folder)])


def test_a_video_that_cannot_be_read_costs_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = [*GYM, *SHORT, f"outputs={tmp_path}"]
    assert exit_code(main, run) == 0
    folder = load_config(run).run_folder
    (folder / "videos").mkdir()
    (folder / "videos" / "episode_1.mp4").write_bytes(b"no film")
    (folder / "videos" / "episode_1.json").write_text(json.dumps({"global_step": 512}))
    assert exit_code(main, ["tracker=tensorboard", *run]) == 0
    assert "warning" not in capfd.readouterr().err
    assert [event.step for event in events(folder).Scalars("charts/SPS")] == [512, 1024]
    assert '"status": "complete"' in events(folder).Tensors("result")[0].tensor_proto.string_val[0].decode()
    assert "InvalidDataError" in (folder / "tensorboard" / "mirror.log").read_text()


@pytest.mark.parametrize(
    ("moment", "trouble"),
    [("open", "raise"), ("write", "kill"), ("open", "hang"), ("close", "hang")],
)
def test_a_tracker_that_fails_or_hangs_at_any_moment_costs_a_warning(
    moment: str, trouble: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "hang":
        monkeypatch.setattr(mirrors, "READY_SECONDS", 2.0)
        monkeypatch.setattr(mirrors, "FINISH_SECONDS", 2.5)
    run = [*GYM, *SHORT, f"outputs={tmp_path}"]
    tracker = [f"+tracker.troubled.{key}" for key in ("_target_=tests.trackers.Troubled", f"moment={moment}")]
    assert exit_code(main, [*run, *tracker, f"+tracker.troubled.trouble={trouble}"]) == 0
    folder = load_config(run).run_folder
    printed = capfd.readouterr()
    (warning,) = (line for line in printed.err.splitlines() if "warning" in line)
    expected = {
        "raise": f"tracker=troubled has stopped: RuntimeError: trouble in {moment}",
        "kill": "tracker=troubled has stopped: killed by SIGKILL",
        "hang": f"tracker=troubled did not finish in time and was stopped; see {folder}/troubled/mirror.log",
    }
    assert warning == f"ppo_bench: warning: {expected[trouble]}"
    assert printed.out == f"{folder}\n"
    assert (folder / "result.json").exists()
    assert mirrors_of(folder) == []


def test_trackers_of_several_runs_are_waited_for_together(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "READY_SECONDS", 4.0)
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({"config": {"tracker": {"troubled": {"moment": "open"}}}}))
    with mirrors.Mirrors(folders, {"troubled": Troubled("open", "hang")}) as running:
        running.start()
        started = time.monotonic()
    assert 4 <= time.monotonic() - started < 11.5  # and not the twelve of one after another
    warnings = capfd.readouterr().err.splitlines()
    assert [line.split(" see ")[1] for line in warnings] == [str(folder / "troubled/mirror.log") for folder in folders]
    assert not any(mirrors_of(folder) for folder in folders)


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that accepts every connection and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        accepted: list[socket.socket] = []

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        assert accepted, "nobody has called"
        server.shutdown(socket.SHUT_RDWR)


def test_a_wandb_server_that_never_answers_costs_a_warning_and_seconds(
    silent_server: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_BASE_URL", silent_server)
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    run = [*GYM, *SHORT, f"outputs={tmp_path}", "tracker=wandb"]
    started = time.monotonic()
    assert exit_code(main, run) == 0
    assert time.monotonic() - started < mirrors.READY_SECONDS + 30  # wandb itself would try for minutes
    printed = capfd.readouterr()
    (warning,) = (line for line in printed.err.splitlines() if "warning" in line)
    assert "tracker=wandb did not finish in time and was stopped" in warning
    assert printed.out == f"{load_config(run).run_folder}\n"


def test_a_package_that_cannot_be_imported_costs_a_warning(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wandb.py").write_text("raise ImportError('libbroken.so: no such file')\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    assert exit_code(main, [*GYM, *SHORT, f"outputs={tmp_path}/runs", "tracker=wandb"]) == 0
    assert "warning: tracker=wandb has stopped: ImportError: libbroken.so: no such file" in capfd.readouterr().err


PATIENT = """
import sys
from ppo_bench.commands.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.runs.trackers import mirrors

mirrors.FINISH_SECONDS = 600.0
sys.exit(exit_code(main, sys.argv[1:]))
"""
"""A training whose end waits for a tracker longer than the test does."""


@pytest.mark.parametrize("started_by", [[], ["env", "--ignore-signal=INT"]], ids=["terminal", "script"])
def test_a_second_interruption_does_not_wait_for_trackers(started_by: list[str], tmp_path: Path) -> None:
    """Nor where a script has started the run in the background, which makes it ignore SIGINT at first."""
    tracker = ["_target_=tests.trackers.Troubled", "moment=close", "trouble=hang"]
    words = [*GYM, "total_timesteps=1_000_000", f"outputs={tmp_path}", *(f"+tracker.troubled.{key}" for key in tracker)]
    folder = load_config(words).run_folder
    with started(*words, by=[*started_by, sys.executable, "-c", PATIENT]) as run:
        wait_until(run, lambda: count_rows(folder) > 0)
        run.send_signal(signal.SIGINT)
        log = folder / "troubled" / "mirror.log"
        wait_until(run, lambda: "chatter" in log.read_text())  # until the tracker hangs in its end
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=60)
    assert run.returncode == 130, error
    assert mirrors_of(folder) == []
