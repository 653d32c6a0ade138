"""A run on CartPole from start to end: the files in its folder, and its messages."""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands import evaluate
from ppo_bench.common import progress
from ppo_bench.common.cli import exit_code
from ppo_bench.common.progress import ProgressDisplay
from ppo_bench.configuration.load import load_config
from ppo_bench.runners.checkpoint import load
from tests.training import BATCH, EVERY, ITERATIONS, NUM_ENVS, RUN, SMALL, rows, run_folder

METRICS = {
    *("iteration", "global_step", "wall_seconds", "sps", "learning_rate", "policy_loss", "value_loss", "entropy"),
    *("old_approx_kl", "approx_kl", "clip_fraction", "explained_variance", "gradient_norm"),
    *("episodic_return", "episodic_length"),
}
RESULT = {
    *("schema_version", "status", "env", "env_id", "backend", "framework", "seed", "total_timesteps", "episodes"),
    *("final_return_mean", "final_return_std", "masked_fraction"),
    *("wall_seconds", "setup_seconds", "compile_seconds", "steady_sps"),
}


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_a_run_leaves_the_documented_files_and_no_others(finished: Path) -> None:
    checkpoints = [f"checkpoints/iteration_{k:08d}" for k in (ITERATIONS - EVERY, ITERATIONS)]
    expected = [f"{folder}/{name}" for folder in checkpoints for name in ("arrays.safetensors", "state.json")]
    configuration = [f".hydra/{name}.yaml" for name in ("config", "hydra", "overrides")]
    assert files(finished) == [
        *configuration,
        ".lock",
        *expected,
        "episodes.jsonl",
        "metrics.jsonl",
        "result.json",
        "run.json",
    ]


def test_checkpoints_hold_nothing_of_environments_that_restart(finished: Path) -> None:
    arrays = load(finished / f"checkpoints/iteration_{ITERATIONS:08d}").arrays
    kinds = {name.partition(".")[0] for name in arrays}
    assert kinds == {"seed", "iteration", "params", "adam", "normalize"}


def test_run_json_says_what_ran_where(finished: Path) -> None:
    run = json.loads((finished / "run.json").read_text())
    assert run["schema_version"] == 1
    words = [*RUN, f"outputs={finished.parents[2]}"]
    assert run["config"] == load_config(words).resolved
    assert run["overrides"] == words
    assert run["metrics"].keys() <= rows(finished)[0].keys()
    assert run["metrics"]["clip_fraction"] == "losses/clipfrac"  # their tags in trackers
    assert run["versions"]["torch"].startswith("2.")
    assert run["versions"]["numpy"] == np.__version__
    assert {"python", "gymnasium", "envpool", "hydra-core", "jax", "ppo-bench"} <= set(run["versions"])
    assert run["git_commit"] is None or re.fullmatch(r"[0-9a-f]{40}\+?", run["git_commit"])
    assert run["hardware"]["cores"] == os.cpu_count()
    assert {"cpu", "memory_gib", "gpu", "platform"} <= set(run["hardware"])
    assert run["execution"]["threads"] == 1
    assert {"device", "precision", "threads"} <= set(run["execution"])


def test_metrics_have_a_row_an_iteration_with_every_documented_field(finished: Path) -> None:
    metrics = rows(finished)
    assert [row["iteration"] for row in metrics] == list(range(1, ITERATIONS + 1))
    assert [row["global_step"] for row in metrics] == [k * BATCH for k in range(1, ITERATIONS + 1)]
    seconds = [row["wall_seconds"] for row in metrics]
    assert seconds == sorted(seconds)
    assert seconds[0] > 0
    for row in metrics:
        assert set(row) >= METRICS
        assert all(isinstance(row[key], int | float) for key in METRICS), row
        assert row["sps"] > 0
        assert 0 < row["entropy"] < np.log(2) + 1e-6
        assert row["explained_variance"] <= 1
        assert 0 <= row["clip_fraction"] <= 1
    assert metrics[0]["learning_rate"] == 2.5e-4
    assert metrics[-1]["learning_rate"] == pytest.approx(2.5e-4 / ITERATIONS)


def test_episodes_agree_with_the_metrics_row_of_their_iteration(finished: Path) -> None:
    episodes = rows(finished, "episodes")
    steps = [row["global_step"] for row in episodes]
    assert steps == sorted(steps)
    assert all(set(row) == {"global_step", "env", "return", "length"} for row in episodes)
    assert {row["env"] for row in episodes} == set(range(NUM_ENVS))
    for metrics in rows(finished):
        last = metrics["global_step"]
        ended = [row for row in episodes if last - BATCH < row["global_step"] <= last]
        assert metrics["episodes"] == len(ended)
        assert metrics["episodic_return"] == pytest.approx(statistics.mean(row["return"] for row in ended))
        assert metrics["episodic_length"] == pytest.approx(statistics.mean(row["length"] for row in ended))


def test_every_step_belongs_to_an_episode_a_reset_or_an_episode_that_did_not_end(finished: Path) -> None:
    episodes, metrics = rows(finished, "episodes"), rows(finished)
    assert all(row["return"] == row["length"] for row in episodes)  # CartPole pays 1 a step
    masked = sum(row["masked_fraction"] * BATCH for row in metrics)
    # Every episode's end is followed by a reset step, unless the environments were restarted right after it.
    assert len(episodes) - NUM_ENVS * ITERATIONS // EVERY <= masked <= len(episodes)
    between = EVERY * BATCH
    for start in range(0, ITERATIONS * BATCH, between):
        ended = [row for row in episodes if start < row["global_step"] <= start + between]
        resets = sum(row["masked_fraction"] * BATCH for row in metrics if start < row["global_step"] <= start + between)
        unfinished = between - resets - sum(row["length"] for row in ended)
        assert 0 <= unfinished < NUM_ENVS * 500
        for env in range(NUM_ENVS):  # within each environment, one after the other
            mine = [row for row in ended if row["env"] == env]
            for before, after in itertools.pairwise(mine):
                assert after["global_step"] - before["global_step"] == NUM_ENVS * (after["length"] + 1)


def test_the_best_checkpoint_is_the_one_with_the_highest_return(finished: Path) -> None:
    episodes = rows(finished, "episodes")
    means = {}
    for iteration in range(EVERY, ITERATIONS + 1, EVERY):
        recent = [row["return"] for row in episodes if row["global_step"] <= iteration * BATCH][-100:]
        means[iteration] = statistics.fmean(recent)
    best = max(means, key=lambda iteration: (means[iteration], iteration))
    assert (finished / "checkpoints" / "best").resolve().name == f"iteration_{best:08d}"
    assert load(finished / "checkpoints" / "best").loop["best_return"] == pytest.approx(means[best])


def test_result_json_sums_the_run_up(finished: Path) -> None:
    result = json.loads((finished / "result.json").read_text())
    metrics, episodes = rows(finished), rows(finished, "episodes")
    last = [row["return"] for row in episodes[-100:]]
    assert set(result) >= RESULT
    assert result["status"] == "complete"
    assert (result["env"], result["env_id"]) == ("cartpole", "CartPole-v1")
    assert (result["backend"], result["framework"], result["seed"]) == ("gymnasium", "torch_eager", 1)
    assert (result["total_timesteps"], result["global_step"]) == (ITERATIONS * BATCH + 100, ITERATIONS * BATCH)
    assert (result["iterations"], result["episodes"]) == (ITERATIONS, len(episodes))
    assert result["final_return_mean"] == pytest.approx(statistics.mean(last))
    assert result["final_return_std"] == pytest.approx(statistics.pstdev(last))
    assert result["masked_fraction"] == pytest.approx(statistics.mean(row["masked_fraction"] for row in metrics))
    assert result["wall_seconds"] == metrics[-1]["wall_seconds"]
    assert result["steady_sps"] == statistics.median(row["sps"] for row in metrics)
    assert result["mean_sps"] == pytest.approx(ITERATIONS * BATCH / result["wall_seconds"])
    assert result["setup_seconds"] > 0
    assert result["compile_seconds"] is None


def test_the_policy_improves(finished: Path) -> None:
    returns = [row["return"] for row in rows(finished, "episodes")]
    assert statistics.mean(returns[-50:]) > 2 * statistics.mean(returns[:50])


def test_what_did_not_happen_is_null(tmp_path: Path) -> None:
    arguments = [*SMALL, "ppo.num_envs=1", "ppo.num_steps=4", "ppo.num_minibatches=1", "total_timesteps=4"]
    assert exit_code(main, [*arguments, f"outputs={tmp_path}"]) == 0
    folder = run_folder(*arguments, f"outputs={tmp_path}")
    (row,) = rows(folder)
    result = json.loads((folder / "result.json").read_text())
    assert (row["episodes"], row["episodic_return"], row["episodic_length"]) == (0, None, None)
    assert (result["episodes"], result["final_return_mean"], result["final_return_std"]) == (0, None, None)
    assert (folder / "episodes.jsonl").read_bytes() == b""
    assert "NaN" not in (folder / "metrics.jsonl").read_text() + (folder / "result.json").read_text()


def test_the_run_folder_is_the_last_line_of_stdout_and_progress_goes_to_stderr(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*SMALL, f"outputs={tmp_path}"]) == 0
    printed = capfd.readouterr()
    assert printed.out == f"{run_folder(*SMALL, f'outputs={tmp_path}')}\n"
    assert "step 1,024 of 1,024" in printed.err


def test_the_last_episodes_of_an_iteration_have_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name, at_most in (("all", 1_000), ("some", 2)):
        monkeypatch.setattr("ppo_bench.runs.run_writer.EPISODE_ROWS_PER_ITERATION", at_most)
        words = ["env=cartpole", "ppo.num_steps=64", "total_timesteps=512", "device=cpu", f"outputs={tmp_path / name}"]
        assert exit_code(main, words) == 0
        (file,) = (tmp_path / name).rglob("episodes.jsonl")
        found.append(rows(file.parent, "episodes"))
    every, some = found
    by_iteration = [[row for row in every if (row["global_step"] - 1) // 256 == k] for k in (0, 1)]
    assert all(len(rows) > 2 for rows in by_iteration)
    assert some == [row for rows in by_iteration for row in rows[-2:]]


def test_an_environment_that_breaks_is_named_and_what_was_saved_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An environment that gives no number from its 300th step on, before a checkpoint and after one."""
    broken = ["env.id=tests.broken:BreaksLater-v0", "backend=gymnasium", "total_timesteps=4096", f"outputs={tmp_path}"]
    assert exit_code(main, broken) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "environment 0 gave an observation of nan, which is not finite; no checkpoint yet" in message
    assert exit_code(main, [*broken, "checkpoint.every_iterations=1"]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.endswith("seed1 is kept up to iteration 2")


def test_an_observation_of_nan_after_a_restart_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["env.id=tests.broken:BreaksAtRestart-v0", "backend=gymnasium", "total_timesteps=4096"]
    assert exit_code(main, [*words, "checkpoint.every_iterations=2", f"outputs={tmp_path}"]) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert "environment 0 gave an observation of nan, which is not finite" in message
    assert message.endswith("seed1 is kept up to iteration 2")


def test_the_standard_deviation_of_a_policy_is_a_column(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "std" not in rows(finished)[0]  # CartPole's actions are choices
    words = ["env=pendulum", "ppo.num_envs=2", "ppo.num_steps=64", "total_timesteps=512", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    usual = [row["std"] for row in rows(Path(capsys.readouterr().out.splitlines()[-1]))]
    assert usual == pytest.approx([1.0] * 4, rel=0.1)
    assert exit_code(main, [*words, "ppo.ent_coef=10", "ppo.learning_rate=0.03"]) == 0
    large = [row["std"] for row in rows(Path(capsys.readouterr().out.splitlines()[-1]))]
    assert large == sorted(large)
    assert large[-2] > 10.0


def test_the_time_left_is_that_of_all_seeds_and_not_told_of_the_first_iterations(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four seeds of 1,000 steps each; at 100 steps a second of all together, 700 steps of each take 28 seconds."""
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_SECONDS", 0.0)
    with ProgressDisplay("short", "mine", 1000, runs=4) as display:
        for step in (100, 200, 300):
            display.update(step, lambda: None, 100.0)
        display.update(1000, lambda: 2.5, 100.0)
    lines = [line.removeprefix("ppo_bench: mine  step ") for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        "100 of 1,000  return -  100 SPS",
        "200 of 1,000  return -  100 SPS",
        "300 of 1,000  return -  100 SPS  0:28 left",
        "1,000 of 1,000  return 2.50  100 SPS  0:00 left",
    ]


def test_an_environment_may_change_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["env.id=tests.broken:Moves-v0", "backend=gymnasium", "ppo.num_steps=8", "ppo.num_envs=1"]
    assert exit_code(main, [*words, "total_timesteps=32", "ppo.num_minibatches=1", "device=cpu", "outputs=o"]) == 0
    folder = tmp_path / capfd.readouterr().out.strip()
    assert {path.parent for path in tmp_path.rglob("*.json*") if path.parent.name == "seed1"} == {folder}
    assert [row["iteration"] for row in rows(folder)] == [1, 2, 3, 4]

    monkeypatch.chdir(tmp_path)
    relative = [str(folder.relative_to(tmp_path)), "outputs=p"]
    assert exit_code(evaluate.main, [*relative, "episodes=1"]) == 0
    (file,) = (tmp_path / "p").rglob("iteration_00000004-*.json")
    assert capfd.readouterr().out.splitlines()[-1] == str(file)
