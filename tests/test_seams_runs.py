"""Runs of a user-defined algorithm and network, from the command line to the report."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.__main__ import main
from ppo_bench.commands.equivalence.command import main as equivalence
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.commands.query import main as query
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners import checkpoint
from tests.runners import problem_for, runner_for
from tests.scenes import RandomScenes
from tests.seams import LEVELLED, NETWORKS, SMALL, ours, remembering
from tests.training import ENVIRONMENT, timeless

pytestmark = pytest.mark.slow

RUN = ["env=cartpole", "device=cpu", *SMALL, "total_timesteps=768", "checkpoint.every_iterations=4"]


def arrays_of(folder: Path) -> Arrays:
    return checkpoint.load_named(folder).arrays


KILLED = """
import os, signal, sys
from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.runners import checkpoint

save = checkpoint.save

def saved(folder, iteration, *rest):
    if iteration == 12:
        os.kill(os.getpid(), signal.SIGKILL)
    return save(folder, iteration, *rest)

checkpoint.save = saved
sys.exit(exit_code(main, sys.argv[1:]))
"""
"""A training that is killed as it is to write its third checkpoint: it has four rows more than the second."""


@pytest.mark.parametrize(("framework", "backend"), [("torch_eager", "gymnasium"), ("jax_xla", "device")])
def test_a_killed_run_ends_as_it_would_have(framework: str, backend: str, tmp_path: Path) -> None:
    words = [*RUN, f"framework={framework}", f"backend={backend}", *ours("AveragingMlp")]
    whole = [*words, f"outputs={tmp_path / 'whole'}"]
    assert exit_code(main, whole) == 0
    killed = [*words, f"outputs={tmp_path / 'killed'}"]
    folder = load_config(killed).run_folder
    run = subprocess.run([sys.executable, "-c", KILLED, *killed], env=ENVIRONMENT, check=False)
    assert run.returncode == -signal.SIGKILL
    assert len(timeless(folder)) > 8
    assert exit_code(main, killed) == 0
    expected = load_config(whole).run_folder
    assert timeless(folder) == timeless(expected)
    for name, array in arrays_of(expected).items():
        assert_array_equal(arrays_of(folder)[name], array, err_msg=name)


@pytest.mark.parametrize("network", NETWORKS)
def test_seeds_of_one_program_learn_as_alone(network: str, tmp_path: Path) -> None:
    words = [*RUN, "framework=jax_xla", "backend=device", "precision=float64", *ours(network)]
    assert exit_code(main, [*words, "num_seeds=2", f"outputs={tmp_path / 'together'}"]) == 0
    assert exit_code(main, [*words, "seed=2", f"outputs={tmp_path / 'alone'}"]) == 0
    (together,), (alone,) = ((tmp_path / name).rglob("seed2") for name in ("together", "alone"))
    found, expected = arrays_of(together), arrays_of(alone)
    assert set(found) == set(expected)
    for name, array in expected.items():
        assert_allclose(found[name], array, rtol=1e-8, atol=1e-10, err_msg=name)


def test_lockstep_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["env=cartpole", "precision=float64", "device=cpu", *SMALL, "total_timesteps=320"]
    words += ours("AveragingSequencesMlp")
    assert equivalence([*words, "checkpoint.every_iterations=4", f"outputs={tmp_path}"]) == 0
    (about,) = tmp_path.rglob("equivalence.json")
    frameworks = json.loads(about.read_text())["frameworks"]
    assert set(frameworks) == {"torch_compile", "jax_xla"}
    for entry in frameworks.values():
        assert entry["differing_actions"] == 0
        assert entry["largest"]["parameters"] < 1e-12


def test_a_new_metric_is_in_rows_trackers_and_report_and_its_run_is_evaluated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    words = [*RUN, "tracker=tensorboard", *ours("AveragingMlp"), f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    folder = load_config(words).run_folder
    rows = timeless(folder)
    assert rows[-1]["level_loss"] > 0.0
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert {"losses/level", "charts/transitions", "losses/policy_loss"} <= set(events.Tags()["scalars"])
    assert [e.value for e in events.Scalars("charts/transitions")] == [row["transitions"] for row in rows]
    capsys.readouterr()
    assert query(["select max(transitions) as seen, count(level_loss) as rows from metrics", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert f"{rows[-1]['transitions']:.0f}" in shown.replace(",", "")
    returns = {}
    for framework in ("torch_eager", "jax_xla"):
        assert evaluate([str(folder), f"framework={framework}", "episodes=4"]) == 0
        written = max((folder / "evaluations").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        returns[framework] = json.loads(written.read_text())["returns"]
    assert returns["torch_eager"] == returns["jax_xla"]


def test_a_checkpoint_without_what_an_algorithm_learns_is_refused() -> None:
    env = RandomScenes(4, False, False)
    plain = runner_for("torch_eager", problem_for(env, 10, SMALL))
    levelled = runner_for("torch_eager", problem_for(env, 10, [*SMALL, *LEVELLED]))
    with pytest.raises(ConfigError, match=r"missing: params\.level; unexpected: none"):
        levelled.restore(plain.export(plain.init(1)))


def test_another_algorithm_is_another_experiment() -> None:
    plain, levelled = (load_config(["env=cartpole", *words]) for words in ([], LEVELLED))
    assert levelled.run_folder != plain.run_folder


def test_whole_environments_must_be_divisible_into_minibatches(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["env=cartpole", "ppo.num_envs=6", "ppo.num_minibatches=4", *remembering("AveragingSequencesMlp")]
    assert exit_code(main, words) == 2
    assert "ppo.num_minibatches=4 does not divide ppo.num_envs=6" in capsys.readouterr().err.splitlines()[-1]
