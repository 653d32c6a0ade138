"""A grid of hyperparameters in one program: each run is the one that it would be alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.report.__main__ import main as report
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.runners import checkpoint
from ppo_bench.runners.jax_seeds import JaxSeedsRunner
from ppo_bench.runners.program_runner import ProgramRunner
from ppo_bench.runs.results import error_of
from tests.processes import has_checkpoint, started, wait_until
from tests.runners import assert_each_is_as_alone, problem_for
from tests.training import ENVIRONMENT, rows, timeless

RUN = ["framework=jax_xla", "backend=device", "total_timesteps=4096"]
GRID = "grid={ppo.learning_rate:[1e-3,2.5e-4],ppo.ent_coef:[0,0.01]}"
ALL = [(1e-3, 0.0), (1e-3, 0.01), (2.5e-4, 0.0), (2.5e-4, 0.01)]
EACH = {
    "learning_rate": 1e-3,
    "gamma": 0.9,
    "gae_lambda": 0.8,
    "clip_coef": 0.05,
    "ent_coef": 0.5,
    "vf_coef": 0.25,
    "max_grad_norm": 0.01,
}
"""A value of each hyperparameter, other than that of conf/ppo/classic.yaml."""


def test_each_run_learns_what_it_learns_alone() -> None:
    env = DynamicsEnv(CartPole(), 4)
    spec = problem_for(env, 4, ["precision=float64", "ppo.num_steps=32", "ppo.target_kl=0.1"])
    base = {name: getattr(spec.ppo, name) for name in EACH}
    values: list[Mapping[str, float]] = [base, base | EACH, *(base | {name: EACH[name]} for name in EACH)]
    alone = ProgramRunner(replace(spec, ppo=replace(spec.ppo, **values[1])))  # type: ignore[arg-type]
    ends = assert_each_is_as_alone(JaxSeedsRunner(spec, values), [3] * len(values), {1: alone})
    weights = [arrays["params.actor.0.weight"] for arrays in ends]
    # Each of them has an effect of its own.
    assert all(np.abs(one - other).max() > 1e-6 for one, other in itertools.combinations(weights, 2))


def test_every_run_has_the_folder_that_it_would_have_alone() -> None:
    config = load_config([*RUN, GRID, "num_seeds=2", "ppo.learning_rate=5e-4"])
    alone = [
        load_config([*RUN, f"ppo.learning_rate={rate}", f"ppo.ent_coef={ent_coef}", f"seed={seed}"])
        for rate, ent_coef in ALL
        for seed in (1, 2)
    ]
    assert config.folders == [one.run_folder for one in alone]
    again = [load_config(one.overrides) for one in config.of_each_run()]
    assert [one.run_folder for one in again] == [one.run_folder for one in alone]
    assert [one.resolved for one in again] == [one.resolved | {"grid": None} for one in alone]


@pytest.mark.slow
def test_a_grid_that_is_killed_goes_on_and_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    words = [*RUN, GRID, "checkpoint.every_iterations=2", "total_timesteps=65_536"]
    runs = load_config([*words, f"outputs={tmp_path / 'killed'}"]).of_each_run()
    divided = ENVIRONMENT | {"JAX_NUM_CPU_DEVICES": "2"}  # as this process does, whose runs it is compared with
    with started(*words, f"outputs={tmp_path / 'killed'}", env=divided) as process:
        wait_until(process, lambda: has_checkpoint(runs[-1].run_folder))
    assert not any((run.run_folder / "result.json").exists() for run in runs)
    for outputs in ("killed", "whole"):
        assert exit_code(main, [*words, f"outputs={tmp_path / outputs}"]) == 0
    for run, whole in zip(runs, load_config([*words, f"outputs={tmp_path / 'whole'}"]).of_each_run(), strict=True):
        assert timeless(run.run_folder) == timeless(whole.run_folder)
        ends = [checkpoint.load_named(checkpoint.find(one.run_folder)).arrays for one in (run, whole)]
        assert checkpoint.digest(ends[0]) == checkpoint.digest(ends[1])


@pytest.mark.slow
def test_its_runs_are_evaluated_reported_and_gone_on_with_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = [*RUN, GRID, "evaluation.every_iterations=4", "evaluation.episodes=2", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 0
    folders = capfd.readouterr().out.split()
    results = [json.loads((Path(folder) / "result.json").read_text()) for folder in folders]
    assert [(result["num_seeds"], result["iterations"]) for result in results] == [(4, 8)] * 4
    kept = [json.loads((Path(folder) / "run.json").read_text())["config"] for folder in folders]
    assert [(one["ppo"]["learning_rate"], one["ppo"]["ent_coef"], one["grid"]) for one in kept] == [
        (*values, None) for values in ALL
    ]
    assert {row["evaluation_return_greedy"] is not None for row in timeless(Path(folders[2]))} == {False, True}
    sweep = ["-m", *RUN, "ppo.learning_rate=1e-3,2.5e-4", "ppo.ent_coef=0,0.01", f"outputs={tmp_path}"]
    assert exit_code(main, [*sweep, "evaluation.every_iterations=4", "evaluation.episodes=2"]) == 0
    assert capfd.readouterr().err.splitlines()[-1] == "ppo_bench: 0 done, 0 failed, 4 skipped"
    assert report([str(tmp_path)]) == 0
    _, *table, _ = capfd.readouterr().out.splitlines()
    for row, (learning_rate, ent_coef) in zip(table, sorted(ALL), strict=True):
        assert row.startswith(f"cartpole ppo.learning_rate={learning_rate} ppo.ent_coef={ent_coef} ")
    load_it = f"checkpoint.load={folders[0]}/checkpoints/iteration_00000008"
    assert exit_code(main, [*RUN, GRID, load_it, "total_timesteps=8192", f"outputs={tmp_path / 'on'}"]) == 0
    assert f"the run of {load_it} had ppo.ent_coef=0.0, ppo.learning_rate=0.001" in capfd.readouterr().err


@pytest.mark.slow
def test_runs_go_on_without_those_whose_learning_diverges(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # The critic's gradients grow with the returns, and their norm soon exceeds what float32 can hold.
    grid = "grid={ppo.vf_coef:[0.5,4e17],ppo.ent_coef:[0,0.01]}"
    words = [*RUN, "total_timesteps=16_384", "checkpoint.every_iterations=2", "ppo.max_grad_norm=1e38", grid]
    words += [f"outputs={tmp_path}"]
    assert exit_code(main, words) == 1
    *lines, last = capfd.readouterr().err.splitlines()
    names = [f"ppo.vf_coef=4e+17 ppo.ent_coef={value} seed 1" for value in (0.0, 0.01)]
    said = f"ppo_bench: 2 of 4 runs failed: {', '.join(names)}; error.txt in the folder of each says why"
    assert last in (said, said.replace(", ".join(names), ", ".join(reversed(names))))
    folders = load_config(words).folders
    for folder in folders[:2]:
        assert [row["iteration"] for row in rows(folder)] == list(range(1, 33))
        assert json.loads((folder / "result.json").read_text())["resumes"] > 0
    for folder, name in zip(folders[2:], names, strict=True):
        (said,) = [line for line in lines if f"{name}: gradient_norm is inf" in line]
        why = said.removeprefix("ppo_bench: ")
        assert why.endswith(f"{folder} is kept up to iteration {len(rows(folder)) // 2 * 2}")
        assert error_of(folder) == why
        assert not (folder / "result.json").exists()
    # The same command tries those again that have failed, from their checkpoints.
    assert exit_code(main, words) == 1
    assert f"resuming {folders[2]} after iteration" in capfd.readouterr().err
