"""Evaluation of real runs: the same in every framework, whole episodes, frozen statistics."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ppo_bench.commands import evaluate
from ppo_bench.commands.evaluate import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import RunError
from ppo_bench.envs.base import EnvStep, PolicyInput
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.mathematics.noise import Stream, env_seeds
from ppo_bench.networks.network import NetworkOutputs, NetworkSpec
from ppo_bench.networks.spec import Mlp
from ppo_bench.runners.checkpoint import Checkpoint, load, save
from ppo_bench.runs.play import Agent, play
from ppo_bench.runs.run_config import load_run
from tests.evaluations import CARTPOLE, ON_CPU, RUNS, evaluated, played
from tests.runners import ACTING
from tests.training import snapshot, trained

# --- In every framework, on every backend -----------------------------------------------------------------------------


@pytest.mark.parametrize("greedy", ["true", "false"])
def test_every_framework_plays_the_same_episodes_with_every_frameworks_checkpoint(runs: RUNS, greedy: str) -> None:
    for folder in runs.values():
        own, *others = (evaluated(folder, f"framework={f}", "episodes=6", f"greedy={greedy}") for f in ACTING)
        assert len(own["returns"]) == len(own["lengths"]) == 6
        assert len(set(own["returns"])) > 1
        for other in others:
            assert played(other) == played(own)
            assert other["framework"] != own["framework"]


def test_several_runs_are_played_one_after_the_other_as_alone(
    runs: RUNS, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folders = [str(folder) for folder in runs.values()]
    capfd.readouterr()
    assert exit_code(main, [*folders, ON_CPU, "episodes=4", "framework=torch_eager", f"outputs={tmp_path}"]) == 0
    *lines, last = capfd.readouterr().out.splitlines()
    files = [Path(line) for line in lines if line.endswith(".json")]
    means = []
    for folder, file in zip(runs.values(), files, strict=True):
        together = json.loads(file.read_text())
        assert played(together) == played(evaluated(folder, "episodes=4", "framework=torch_eager"))
        means.append(together["return_mean"])
    assert last == f"{len(means)} runs: {np.mean(means):.2f} on average, std {np.std(means):.2f}"


def test_policies_whose_folders_have_one_name_have_files_of_their_own(
    runs: RUNS, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = runs["torch_eager"]
    copy = shutil.copytree(run, tmp_path / "copies" / run.parent.name / run.name)
    words = [str(run), str(copy), ON_CPU, "episodes=2", f"outputs={tmp_path / 'found'}"]
    assert exit_code(main, words) == 0
    assert len(list((tmp_path / "found").rglob("*.json"))) == 2


def test_greedy_sampled_and_seeded_evaluations_differ_and_each_repeats(runs: RUNS) -> None:
    def returns(*overrides: str) -> list[float]:
        found: list[float] = evaluated(runs["torch_eager"], "episodes=4", *overrides)["returns"]
        return found

    ways = [["seed=1"], ["seed=2"], ["greedy=false"], ["greedy=false", "seed=2"], ["num_envs=2"]]
    assert len({str(returns(*way)) for way in ways}) == len(ways)
    assert returns("greedy=false") == returns("greedy=false")


@pytest.mark.slow
def test_runs_inside_a_program_are_evaluated_by_every_framework(tmp_path: Path) -> None:
    folder = trained(tmp_path, *CARTPOLE, "framework=jax_xla", "backend=device")
    own, *others = (evaluated(folder, f"framework={framework}", "episodes=4") for framework in ACTING)
    assert own["backend"] == "device"
    for other in others:
        assert played(other) == played(own)
    elsewhere = evaluated(folder, "framework=torch_eager", "backend=gymnasium", "episodes=4")
    assert played(elsewhere) != played(own)


def test_the_checkpoint_that_is_named_is_evaluated_and_else_the_newest(runs: RUNS) -> None:
    folder = runs["torch_eager"]
    newest = evaluated(folder)
    assert (newest["checkpoint"], newest["iteration"], newest["global_step"]) == ("iteration_00000004", 4, 2048)
    assert exit_code(main, [str(folder / "checkpoints/iteration_00000002"), ON_CPU]) == 0
    (written,) = folder.glob("evaluations/iteration_00000002-*.json")
    older = json.loads(written.read_text())
    assert (older["iteration"], older["global_step"]) == (2, 1024)
    assert older["returns"] != newest["returns"]


def test_a_checkpoint_that_its_run_prunes_before_it_is_loaded_is_found_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prune_and_load(*args: Any) -> Any:
        if (newest := run / "checkpoints/iteration_00000004").exists():
            newest.rename(newest.with_name("iteration_00000006"))
        return load_run(*args)

    monkeypatch.setattr(evaluate, "load_run", prune_and_load)
    assert evaluated(run, "episodes=1")["checkpoint"] == "iteration_00000006"


# --- Which episodes count ---------------------------------------------------------------------------------------------


def test_returns_and_lengths_are_those_of_a_plain_loop_over_gymnasium(runs: RUNS, capsys: Any) -> None:
    arrays = load(runs["torch_eager"] / "checkpoints/iteration_00000004").arrays

    def action(obs: np.ndarray) -> int:
        for layer in range(3):
            obs = arrays[f"params.actor.{layer}.weight"] @ obs + arrays[f"params.actor.{layer}.bias"]
            obs = np.tanh(obs) if layer < 2 else obs
        return int(np.argmax(obs))

    returns = []
    for seed, episodes in zip(env_seeds(3, 0, 3, Stream.EVALUATION_ENV_SEEDS), (3, 2, 2), strict=True):
        env = gymnasium.make("CartPole-v1")
        for episode in range(episodes):
            obs, _ = env.reset(seed=seed if episode == 0 else None)
            total, over = 0.0, False
            while not over:
                obs, reward, terminated, truncated, _ = env.step(action(obs))
                total, over = total + float(reward), terminated or truncated
            returns.append(total)
        env.close()
    capsys.readouterr()
    found = evaluated(runs["torch_eager"], "seed=3", "episodes=7", "num_envs=3")
    assert found["returns"] == found["lengths"] == returns
    assert found["envs"] == [0, 0, 0, 1, 1, 2, 2]
    assert found["return_mean"] == pytest.approx(np.mean(returns))
    assert found["return_std"] == pytest.approx(np.std(returns))
    assert (found["return_min"], found["return_max"]) == (min(returns), max(returns))
    _, header, row, path = capsys.readouterr().out.splitlines()
    assert header.split() == ["episodes", "return", "mean", "std", "min", "max", "length", "mean"]
    shown = (np.mean(returns), np.std(returns), min(returns), max(returns))
    assert row.split() == ["7", *(f"{x:.2f}" for x in shown), f"{np.mean(returns):.1f}"]
    assert Path(path).parent == (runs["torch_eager"] / "evaluations").resolve()


class Lives:
    """Environment i plays games of `lives` lives, each of `lengths[i]` steps; a step pays 5, clipped to 1."""

    masks_actions = False
    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, lengths: Sequence[int], lives: int = 1) -> None:
        self.num_envs = len(lengths)
        self._lengths, self._lives = np.array(lengths), lives

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self._step, self._lost = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return PolicyInput(np.zeros((self.num_envs, 1), np.float32))

    def step(self, actions: np.ndarray) -> EnvStep:
        reset = self._step == self._lengths
        self._step = np.where(reset, 0, self._step + 1)
        dead = self._step == self._lengths
        self._lost += dead
        paid = np.where(reset, 0, 5).astype(np.float32)
        over = dead & (self._lost % self._lives == 0)
        return EnvStep(self._step[:, None].astype(np.float32), np.sign(paid), dead, np.zeros_like(dead), over, paid)

    def close(self) -> None:
        pass


def constant(obs: np.ndarray, episode_start: np.ndarray, carry: Tree) -> NetworkOutputs:
    return NetworkOutputs((np.zeros((len(obs), 2), np.float32),), np.zeros(len(obs), np.float32), carry)


def agent_for(env: Lives) -> Agent:
    network: NetworkSpec = Mlp([], "tanh").build(env.observation_space, env.action_space)
    return Agent(network, constant, None, obs_clip=2.0, precision="float32", greedy=True, seed=1)


def test_every_environment_plays_its_quota_however_long_its_episodes_are() -> None:
    env = Lives([1, 10])
    ended = list(play(env, agent_for(env), episodes=7, seed=1))
    assert sorted((e.env, e.length) for e in ended) == [(0, 1)] * 4 + [(1, 10)] * 3
    assert [e.episode_return for e in ended] == [5 * e.length for e in ended]
    assert max(e.step for e in ended) == 2 * (3 * 10 + 2)  # three long ones and two resets, in two environments


def test_an_episode_is_a_whole_game_of_all_its_lives_and_pays_unclipped_rewards() -> None:
    env = Lives([4, 2], lives=3)
    ended = sorted(play(env, agent_for(env), episodes=4, seed=1), key=lambda episode: episode.env)
    assert [(e.length, e.episode_return) for e in ended] == [(12, 60.0)] * 2 + [(6, 30.0)] * 2


def test_episodes_that_never_end_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ppo_bench.runs.play.MAX_STEPS_WITHOUT_AN_END", 20)
    slow = Lives([18])
    assert len(list(play(slow, agent_for(slow), episodes=3, seed=1))) == 3
    env = Lives([2, 10_000])
    with pytest.raises(RunError, match="no episode has ended in 20 steps: give the environment a time limit"):
        list(play(env, agent_for(env), episodes=4, seed=1))


# --- Normalisation ----------------------------------------------------------------------------------------------------


def test_a_continuous_run_is_evaluated_with_its_statistics_frozen(tmp_path: Path) -> None:
    hopper = ["env=hopper", "backend=gymnasium", "ppo.num_steps=512", "total_timesteps=512", "ppo.update_epochs=1"]
    folder = trained(tmp_path, *hopper)
    path = folder / "checkpoints/iteration_00000001"
    before = (path / "arrays.safetensors").read_bytes()
    one, three = (evaluated(folder, f"episodes={n}", "precision=float64") for n in (1, 3))
    # Statistics that learnt from the other two environments would have changed what the first one does.
    assert three["returns"][0] == pytest.approx(one["returns"][0], rel=1e-6)
    again = evaluated(folder, "episodes=3", "precision=float64", "framework=jax_xla")
    assert again["lengths"] == three["lengths"]
    assert again["returns"] == pytest.approx(three["returns"], rel=1e-6)
    assert (path / "arrays.safetensors").read_bytes() == before
    saved = load(path)
    shifted = saved.arrays | {"normalize.obs.mean": saved.arrays["normalize.obs.mean"] + 1.0}
    save(path.parent, 1, Checkpoint(shifted, saved.loop))
    assert evaluated(folder, "episodes=1", "precision=float64")["returns"] != one["returns"]


# --- What is written --------------------------------------------------------------------------------------------------


def test_a_policy_is_played_where_it_was_not_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without gravity a pendulum that nobody has trained keeps turning; what was said of the task itself stays."""
    small = ["total_timesteps=128", "ppo.num_envs=2", "ppo.num_steps=64", "ppo.num_minibatches=1"]
    run = trained(tmp_path, "env.id=Pendulum-v1", "ppo=continuous", "backend=gymnasium", "device=cpu", *small)
    task, elsewhere = evaluated(run, "episodes=2"), evaluated(run, "episodes=2", "env.kwargs={g:0.0}")
    assert (task["env_kwargs"], elsewhere["env_kwargs"]) == ({}, {"g": 0.0})
    assert task["returns"] != elsewhere["returns"]
    assert "Pendulum-v1 (Pendulum-v1, g=0.0) on gymnasium" in capsys.readouterr().out
    written = sorted(path.name for path in (run / "evaluations").glob("*.json"))
    assert [name.startswith("elsewhere-iteration_") for name in written] == [True, False]
    assert exit_code(main, [str(run), "env.kwargs={gravity:0.0}"]) == 2


def test_nothing_of_the_training_is_touched_and_the_same_command_writes_the_same(run: Path) -> None:
    before = snapshot(run)
    first = evaluated(run, "episodes=2")
    assert evaluated(run, "episodes=2") == first
    assert len(list(run.glob("evaluations/*"))) == 1
    evaluated(run, "episodes=3")
    assert len(list(run.glob("evaluations/*"))) == 2
    assert snapshot(run) == before
    assert first["schema_version"] == 1
    assert (first["env"], first["env_id"], first["backend"]) == ("cartpole", "CartPole-v1", "gymnasium")
    assert (first["seed"], first["greedy"], first["episodes"], first["video"]) == (1, True, 2, None)
    assert first["versions"]["numpy"] == np.__version__
