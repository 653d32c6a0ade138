"""Trackers show the content of a run's files; one that fails causes a warning, never a failed run."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from tests.processes import TRAIN, count_rows, started, wait_until
from tests.tracked import events, history, wandb_records
from tests.training import ENVIRONMENT, GYM, SHORT, rows

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clone")]

OFFLINE = ["tracker=wandb", "tracker.wandb.mode=offline"]
BOTH = ["tracker=[tensorboard,wandb]", *OFFLINE[1:], "tracker.wandb.project=test"]
CLEANRL = {
    *("charts/episodic_return", "charts/episodic_length", "charts/SPS", "charts/SPS_update", "charts/learning_rate"),
    *("charts/avg_episodic_return", "losses/value_loss", "losses/policy_loss", "losses/entropy"),
    *("losses/old_approx_kl", "losses/approx_kl", "losses/clipfrac", "losses/explained_variance"),
}
OWN = {"losses/gradient_norm", "charts/masked_fraction"}
"""What CleanRL has no tag for."""


def trained(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A training in a process of its own, with wandb's settings from `variables` alone."""
    environment = {name: value for name, value in ENVIRONMENT.items() if not name.startswith("WANDB_")}
    return subprocess.run(
        [*TRAIN, *words], env=environment | variables, capture_output=True, text=True, check=True, timeout=600
    )


def warnings_of(run: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in run.stderr.splitlines() if "warning" in line]


def test_a_run_that_is_killed_and_resumed_appears_once_in_every_tracker(tmp_path: Path) -> None:
    run = [*GYM, "total_timesteps=30_720", "checkpoint.every_iterations=10", f"outputs={tmp_path}"]
    folder = load_config(run).run_folder
    with started(*BOTH, *run, stderr=subprocess.DEVNULL) as killed:
        wait_until(killed, (folder / "checkpoints" / "iteration_00000020").exists)
    resumed = trained(*BOTH, *run)
    assert resumed.stdout.splitlines()[-1] == str(folder)
    assert warnings_of(resumed) == []

    metrics = rows(folder)
    steps = [row["global_step"] for row in metrics]
    assert steps == list(range(512, 30_721, 512))
    board = events(folder)
    assert set(board.Tags()["scalars"]) == CLEANRL | OWN
    for tag, name in (
        ("losses/value_loss", "value_loss"),
        ("losses/clipfrac", "clip_fraction"),
        ("charts/SPS_update", "sps"),
        ("charts/masked_fraction", "masked_fraction"),
    ):
        assert [event.step for event in board.Scalars(tag)] == steps
        assert [event.value for event in board.Scalars(tag)] == pytest.approx([row[name] for row in metrics])
    times = [event.wall_time for event in board.Scalars("charts/SPS")]
    assert times[-1] - times[0] == pytest.approx(metrics[-1]["wall_seconds"] - metrics[0]["wall_seconds"])
    (config,) = board.Tensors("run/text_summary")[-1].tensor_proto.string_val
    assert b'"total_timesteps": 30720' in config

    first, second = sorted(folder.glob("wandb/offline-run-*/*.wandb"))
    assert first.name == second.name
    assert [row["global_step"] for row in history(first)] == steps[: len(history(first))]
    logged = history(second)
    assert [row["global_step"] for row in logged] == steps
    assert set(logged[0]) >= CLEANRL - {"charts/episodic_return", "charts/episodic_length"} | OWN
    assert [row["losses/clipfrac"] for row in logged] == pytest.approx([row["clip_fraction"] for row in metrics])
    (about,) = (r.run for r in wandb_records(second) if r.WhichOneof("record_type") == "run")
    assert (about.project, about.run_group) == ("test", folder.parent.name)
    configured = {entry.key: json.loads(entry.value_json) for entry in about.config.update}
    assert configured["config"]["total_timesteps"] == 30720
    assert load_config([*BOTH, *run]).run_folder == folder
    assert not list(folder.rglob("*.pkl")) + list(folder.rglob("*.pt"))


def test_a_finished_run_is_logged_afterwards_once_with_its_videos(tmp_path: Path) -> None:
    from ppo_bench.commands.evaluate import main as evaluate

    run = [*GYM, *SHORT, f"outputs={tmp_path}"]
    assert exit_code(main, run) == 0
    folder = load_config(run).run_folder
    assert exit_code(evaluate, [str(folder), "episodes=1", "video=true"]) == 0
    for _ in range(2):
        assert warnings_of(trained(*BOTH, *run)) == []
    (video,) = folder.glob("evaluations/*.mp4")
    board = events(folder)
    assert [event.step for event in board.Scalars("charts/SPS")] == [512, 1024]
    (result,) = board.Tensors("result/text_summary")[0].tensor_proto.string_val
    assert b'"status": "complete"' in result
    (copied,) = folder.glob("wandb/offline-run-*/files/media/videos/videos/*.mp4")
    assert copied.read_bytes() == video.read_bytes()
    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    *logged, last = history(file)
    assert [row["global_step"] for row in logged] == [512, 1024]
    assert not CLEANRL & set(last)  # the video's row is its own
    assert last["global_step"] == 1024


def test_every_seed_of_a_program_is_a_run_of_its_own(tmp_path: Path) -> None:
    run = ["env=cartpole", "framework=jax_xla", "backend=device", "total_timesteps=1024", f"outputs={tmp_path}"]
    assert warnings_of(trained(*run, *BOTH, "num_seeds=2")) == []
    for seed in (1, 2):
        folder = load_config([*run, f"seed={seed}"]).run_folder
        expected = pytest.approx([row["value_loss"] for row in rows(folder)])
        scalars = events(folder).Scalars("losses/value_loss")
        assert [event.step for event in scalars] == [512, 1024]
        assert [event.value for event in scalars] == expected
        (file,) = folder.glob("wandb/offline-run-*/*.wandb")
        assert [row["losses/value_loss"] for row in history(file)] == expected


def test_what_the_user_has_set_for_wandb_is_heeded(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    variables = {"MODE": "offline", "PROJECT": "mine", "DIR": str(tmp_path / "own"), "NAME": "first", "NOTES": "why"}
    variables |= {"RUN_GROUP": "these", "JOB_TYPE": "train", "TAGS": "one,two", "RUN_ID": "abc", "ENTITY": "us"}
    words = [*GYM, *SHORT, f"outputs={tmp_path}/runs", "tracker=wandb"]
    trained(*words, **{f"WANDB_{name}": value for name, value in variables.items()})
    (file,) = (tmp_path / "own").rglob("*.wandb")
    (about,) = (r.run for r in wandb_records(file) if r.WhichOneof("record_type") == "run")
    assert (about.project, about.entity, about.run_id) == ("mine", "us", "abc")
    assert (about.display_name, about.run_group, about.job_type) == ("first", "these", "train")
    assert (about.notes, sorted(about.tags)) == ("why", ["one", "two"])
    own = ["tracker.wandb.notes=because", "tracker.wandb.job_type=try", "tracker.wandb.tags=[three]", "seed=2"]
    trained(*words, *own, **{f"WANDB_{name}": variables[name] for name in ("MODE", "NOTES")})
    (file,) = (tmp_path / "runs").rglob("*.wandb")
    (about,) = (r.run for r in wandb_records(file) if r.WhichOneof("record_type") == "run")
    assert (about.project, about.notes, about.job_type, list(about.tags)) == ("ppo_bench", "because", "try", ["three"])


@pytest.mark.parametrize("moment", ["open", "log", "finish"])
def test_a_tracker_that_raises_costs_a_warning_and_is_left_alone(
    moment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = [*GYM, *SHORT, f"outputs={tmp_path}", "tracker=tensorboard"]
    troubled = [f"+tracker.troubled.{key}" for key in ("_target_=tests.trackers.Troubled", f"moment={moment}")]
    assert exit_code(main, [*run, *troubled]) == 0
    folder = load_config(run).run_folder
    printed = capfd.readouterr()
    (warning,) = (line for line in printed.err.splitlines() if "warning" in line)
    assert warning == f"ppo_bench: warning: tracker=troubled has stopped: RuntimeError: trouble in {moment}"
    assert printed.out == f"{folder}\n"
    assert (folder / "result.json").exists()
    moments = ("open", "log", "finish")
    assert [name for name in moments if (folder / name).exists()] == list(moments[: moments.index(moment) + 1])
    assert [event.step for event in events(folder).Scalars("charts/SPS")] == [512, 1024]  # the other goes on
    (folder / "open").unlink()
    assert exit_code(main, [*run, *troubled]) == 0
    assert (folder / "open").exists(), "it has not got the finished run yet"


def test_damaged_rows_of_a_finished_run_cost_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = [*GYM, *SHORT, f"outputs={tmp_path}"]
    assert exit_code(main, run) == 0
    folder = load_config(run).run_folder
    with open(folder / "metrics.jsonl", "a") as file:
        file.write("not a row\n")
    capfd.readouterr()
    assert exit_code(main, [*run, "tracker=tensorboard"]) == 0
    printed = capfd.readouterr()
    assert f"warning: {folder / 'metrics.jsonl'}" in " ".join(printed.err.split())
    assert printed.out == f"{folder}\n"


def test_a_tracker_that_exits_costs_a_warning(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keys = ("_target_=tests.trackers.Troubled", "moment=log", "trouble=exit")
    assert exit_code(main, [*GYM, *SHORT, f"outputs={tmp_path}", *(f"+tracker.troubled.{key}" for key in keys)]) == 0
    assert "warning: tracker=troubled has stopped: SystemExit: 3" in capfd.readouterr().err


def test_a_second_interruption_does_not_wait_for_trackers(tmp_path: Path) -> None:
    """As of a script that has started the run in the background, which makes it ignore SIGINT at first."""
    tracker = ["_target_=tests.trackers.Troubled", "moment=finish", "trouble=hang"]
    words = [*GYM, "total_timesteps=1_000_000", f"outputs={tmp_path}", *(f"+tracker.troubled.{key}" for key in tracker)]
    folder = load_config(words).run_folder
    with started(*words, by=["env", "--ignore-signal=INT", *TRAIN]) as run:
        wait_until(run, lambda: count_rows(folder) > 0)
        run.send_signal(signal.SIGINT)
        wait_until(run, (folder / "finish").exists)  # until the tracker hangs in its end
        run.send_signal(signal.SIGINT)
        _, error = run.communicate(timeout=300)
    assert run.returncode == 130, error
