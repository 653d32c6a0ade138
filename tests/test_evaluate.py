"""Evaluation of real runs: the same in every framework, whole episodes, frozen statistics, and a video of one."""

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

from ppo_bench import normalize
from ppo_bench.__main__ import main as train
from ppo_bench.checkpoint import Checkpoint, load, save
from ppo_bench.cli import exit_code
from ppo_bench.config import load_config
from ppo_bench.envs.base import Step
from ppo_bench.evaluate import main
from ppo_bench.networks.spec import Mlp, NetworkSpec
from ppo_bench.noise import Stream, env_seeds
from ppo_bench.play import Agent, play, quotas
from ppo_bench.ppo import Head
from ppo_bench.runners.base import Policy
from tests.runners import FRAMEWORKS

CARTPOLE = ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=2048", "checkpoint.every_iterations=2"]
SMALL = ["ppo.num_steps=16", "ppo.num_envs=2", "ppo.num_minibatches=1", "ppo.update_epochs=1", "total_timesteps=32"]
INSIDE = ["framework=jax_xla", "backend=envpool_xla"]
ON_CPU = "device=cpu"

RUNS = dict[str, Path]


def trained(outputs: Path, *overrides: str) -> Path:
    arguments = [*overrides, ON_CPU, f"outputs={outputs}"]
    assert exit_code(train, arguments) == 0
    return load_config(arguments).run_folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RUNS:
    """A short run on CartPole by each framework."""
    outputs = tmp_path_factory.mktemp("runs")
    return {framework: trained(outputs, *CARTPOLE, f"framework={framework}") for framework in FRAMEWORKS}


@pytest.fixture
def run(runs: RUNS, tmp_path: Path) -> Path:
    """A copy of a run, to be changed."""
    return shutil.copytree(runs["torch_eager"], tmp_path / "seed1", ignore=shutil.ignore_patterns("evaluations"))


def evaluated(folder: Path, *overrides: str) -> dict[str, Any]:
    """What an evaluation wrote."""
    before = {path: path.stat().st_mtime_ns for path in folder.glob("evaluations/*.json")}
    assert exit_code(main, [str(folder), ON_CPU, *overrides]) == 0
    (written,) = (p for p in folder.glob("evaluations/*.json") if p.stat().st_mtime_ns != before.get(p))
    found: dict[str, Any] = json.loads(written.read_text())
    return found


def played(evaluation: dict[str, Any]) -> tuple[list[float], list[int]]:
    return evaluation["returns"], evaluation["lengths"]


def config_with(run: Path, **changes: Any) -> None:
    about = json.loads((run / "run.json").read_text())
    about["config"] |= changes
    (run / "run.json").write_text(json.dumps(about))


# --- In every framework, on every backend -----------------------------------------------------------------------------


@pytest.mark.parametrize("greedy", ["true", "false"])
def test_every_framework_plays_the_same_episodes_with_every_frameworks_checkpoint(runs: RUNS, greedy: str) -> None:
    seen = []
    for folder in runs.values():
        own, *others = (evaluated(folder, f"framework={f}", "episodes=6", f"greedy={greedy}") for f in FRAMEWORKS)
        assert len(own["returns"]) == len(own["lengths"]) == 6
        assert len(set(own["returns"])) > 1
        for other in others:
            assert played(other) == played(own)
            assert other["framework"] != own["framework"]
        seen.append(played(own))
    # The runs differ by rounding alone, so do their policies: the episodes of all of them are the same too.
    assert seen == [seen[0]] * len(FRAMEWORKS)


def test_greedy_sampled_and_seeded_evaluations_differ_and_each_repeats(runs: RUNS) -> None:
    def returns(*overrides: str) -> list[float]:
        found: list[float] = evaluated(runs["torch_eager"], *overrides)["returns"]
        return found

    ways = [["seed=1"], ["seed=2"], ["greedy=false"], ["greedy=false", "seed=2"], ["num_envs=2"]]
    assert len({str(returns(*way)) for way in ways}) == len(ways)
    assert returns("greedy=false") == returns("greedy=false")


def test_runs_inside_a_program_are_evaluated_by_every_framework(tmp_path: Path) -> None:
    folder = trained(tmp_path, *CARTPOLE, "framework=jax_xla", "backend=jax")
    own, *others = (evaluated(folder, f"framework={framework}", "episodes=4") for framework in FRAMEWORKS)
    assert own["backend"] == "jax"
    for other in others:
        assert played(other) == played(own)
    elsewhere = evaluated(folder, "framework=torch_eager", "backend=gymnasium", "episodes=4")
    assert played(elsewhere) != played(own)


def test_a_run_that_stepped_envpool_inside_its_program_is_evaluated_on_envpool(run: Path) -> None:
    config_with(run, **{key: load_config(INSIDE).resolved[key] for key in ("framework", "backend")})
    by_default = evaluated(run, "episodes=4")
    assert (by_default["backend"], by_default["framework"]) == ("envpool", "jax_xla")
    assert played(evaluated(run, "backend=envpool_xla", "episodes=4")) == played(by_default)


def test_the_checkpoint_that_is_named_is_evaluated_and_else_the_newest(runs: RUNS) -> None:
    folder = runs["torch_eager"]
    newest = evaluated(folder)
    assert (newest["checkpoint"], newest["iteration"], newest["global_step"]) == ("iteration_00000004", 4, 2048)
    assert exit_code(main, [str(folder / "checkpoints/iteration_00000002"), ON_CPU]) == 0
    (written,) = folder.glob("evaluations/iteration_00000002-*.json")
    older = json.loads(written.read_text())
    assert (older["iteration"], older["global_step"]) == (2, 1024)
    assert older["returns"] != newest["returns"]


def test_a_policy_that_has_learnt_balances_the_pole(tmp_path: Path) -> None:
    learn = ["ppo.num_envs=8", "ppo.num_steps=32", "ppo.gamma=0.98", "ppo.gae_lambda=0.8", "ppo.num_minibatches=1"]
    learn += ["ppo.update_epochs=10", "ppo.learning_rate=1e-3", "ppo.ent_coef=0", "total_timesteps=65536"]
    folder = trained(tmp_path, "env=cartpole", "backend=envpool", *learn)
    for framework in ("torch_eager", "jax_xla"):
        found = evaluated(folder, f"framework={framework}")
        assert found["return_mean"] >= 475  # CartPole-v1's own threshold; 500 is the most that its time limit allows
        assert found["return_max"] == 500


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

    action_space = spaces.Discrete(2)
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, lengths: Sequence[int], lives: int = 1) -> None:
        self.num_envs = len(lengths)
        self._lengths, self._lives = np.array(lengths), lives

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self._step, self._lost = np.zeros(self.num_envs, int), np.zeros(self.num_envs, int)
        return np.zeros((self.num_envs, 1), np.float32)

    def step(self, actions: np.ndarray) -> Step:
        reset = self._step == self._lengths
        self._step = np.where(reset, 0, self._step + 1)
        dead = self._step == self._lengths
        self._lost += dead
        paid = np.where(reset, 0, 5).astype(np.float32)
        over = dead & (self._lost % self._lives == 0)
        return Step(self._step[:, None].astype(np.float32), np.sign(paid), dead, np.zeros_like(dead), over, paid)

    def close(self) -> None:
        pass


def constant(obs: np.ndarray) -> tuple[Head, np.ndarray]:
    return (np.zeros((len(obs), 2), np.float32),), np.zeros(len(obs), np.float32)


def agent_for(env: Lives, policy: Policy = constant, obs_stats: normalize.RunningStats | None = None) -> Agent:
    network: NetworkSpec = Mlp([], "tanh").build(env.observation_space, env.action_space)
    return Agent(network, policy, obs_stats, obs_clip=2.0, greedy=True, seed=1)


def test_every_environment_plays_its_quota_however_long_its_episodes_are() -> None:
    env = Lives([1, 10])
    ended = list(play(env, agent_for(env), episodes=7, seed=1))
    assert sorted((e.env, e.length) for e in ended) == [(0, 1)] * 4 + [(1, 10)] * 3
    assert [e.episode_return for e in ended] == [5 * e.length for e in ended]
    assert max(e.step for e in ended) == 2 * (3 * 10 + 2)  # three long ones and two resets, in two environments


@pytest.mark.parametrize(("episodes", "expected"), [(1, [1, 0, 0]), (3, [1, 1, 1]), (8, [3, 3, 2]), (9, [3, 3, 3])])
def test_quotas_add_up_and_differ_by_one_at_most(episodes: int, expected: list[int]) -> None:
    assert quotas(episodes, 3).tolist() == expected


def test_an_episode_is_a_whole_game_of_all_its_lives_and_pays_unclipped_rewards() -> None:
    env = Lives([4, 2], lives=3)
    ended = sorted(play(env, agent_for(env), episodes=4, seed=1), key=lambda episode: episode.env)
    assert [(e.length, e.episode_return) for e in ended] == [(12, 60.0)] * 2 + [(6, 30.0)] * 2


# --- Normalisation ----------------------------------------------------------------------------------------------------


def test_observations_are_normalised_by_statistics_that_do_not_change() -> None:
    seen: list[np.ndarray] = []

    def remember(obs: np.ndarray) -> tuple[Head, np.ndarray]:
        seen.append(obs.copy())
        return constant(obs)

    stats = normalize.RunningStats(np.array([1.0]), np.array([4.0]), np.float64(100.0))
    env = Lives([8])
    assert len(list(play(env, agent_for(env, remember, stats), episodes=2, seed=1))) == 2
    steps = [*range(9), *range(8)]
    np.testing.assert_allclose(np.concatenate(seen)[:, 0], np.clip((np.array(steps) - 1) / 2, -2, 2), atol=1e-6)


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


def snapshot(folder: Path) -> dict[Path, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and "evaluations" not in path.parts)
    return {path: path.read_bytes() for path in files}


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


def test_another_folder_can_be_written_to(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, [str(run), ON_CPU, "episodes=1", f"outputs={tmp_path}/elsewhere"]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert path.is_file()
    assert path.is_relative_to(tmp_path / "elsewhere")
    assert not (run / "evaluations").exists()


def test_a_run_that_is_older_than_a_key_is_evaluated(run: Path) -> None:
    about = json.loads((run / "run.json").read_text())
    del about["config"]["checkpoint"]["load"], about["config"]["rerun"]
    (run / "run.json").write_text(json.dumps(about))
    assert evaluated(run, "episodes=1")["episodes"] == 1


# --- Video ------------------------------------------------------------------------------------------------------------


def frames_of(evaluation: dict[str, Any], folder: Path) -> np.ndarray:
    """Every frame of the only video in a folder, `[T, H, W, 3]`."""
    import av

    (path,) = folder.glob("evaluations/*.mp4")
    with av.open(str(path)) as container:
        assert float(container.streams.video[0].average_rate or 0) == evaluation["video"]["fps"]
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_the_video_shows_the_first_episode_frame_by_frame(
    run: Path, framework: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluated(run, f"framework={framework}", "episodes=2", "video=true")
    video = found["video"]
    assert (video["return"], video["length"]) == (found["returns"][0], found["lengths"][0])
    frames = frames_of(found, run)
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
    frames = frames_of(found, folder)
    assert found["lengths"][0] > 5 * 15
    # After each of four lost lives a step that no policy takes starts the next life.
    assert len(frames) == found["lengths"][0] + 1 + 4
    assert frames.shape[1:] == (210, 160, 3)


def test_mujoco_is_drawn_or_the_library_that_is_missing_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    small = ["ppo.num_steps=64", "total_timesteps=64", "ppo.num_minibatches=1", "ppo.update_epochs=1"]
    folder = trained(tmp_path, "env=hopper", "backend=envpool", *small)
    capfd.readouterr()
    code = exit_code(main, [str(folder), ON_CPU, "episodes=1", "greedy=false", "video=true"])
    error = capfd.readouterr().err
    if code:  # without the system's EGL
        assert code == 2
        assert "apt install libegl1" in error
        assert error.count("\n") == 1
        assert not (folder / "evaluations").exists()
        return
    (report,) = folder.glob("evaluations/*.json")
    found = json.loads(report.read_text())
    frames = frames_of(found, folder)
    assert len(frames) == found["video"]["length"] + 1
    assert len({frame.tobytes() for frame in frames}) > len(frames) // 2


def test_what_gymnasium_does_not_offer_is_drawn_by_envpool(run: Path) -> None:
    elsewhere = load_config(["backend=envpool", "~env.ids.gymnasium"]).resolved
    config_with(run, env=elsewhere["env"], backend=elsewhere["backend"])
    found = evaluated(run, "episodes=1", "video=true")
    assert found["backend"] == "envpool"
    assert frames_of(found, run).shape == (found["lengths"][0] + 1, 400, 600, 3)


def test_what_nothing_can_draw_is_evaluated_and_not_drawn(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = load_config(["backend=jax", "framework=jax_xla", "~env.ids.gymnasium", "~env.ids.envpool"]).resolved
    config_with(run, env=elsewhere["env"], backend=elsewhere["backend"])
    assert evaluated(run, "episodes=1")["backend"] == "jax"
    capsys.readouterr()
    assert exit_code(main, [str(run), ON_CPU, "episodes=1", "seed=5", "video=true"]) == 2
    assert "video=true: CartPole-v1 cannot be drawn: neither gymnasium nor EnvPool" in capsys.readouterr().err
    assert len(list(run.glob("evaluations/*"))) == 1


# --- Wrong input ------------------------------------------------------------------------------------------------------

WRONG = {
    "episode=3": "there is no key episode; did you mean episodes?",
    "ppo.gamma=0.5": "there is no key ppo.gamma; there are framework, backend, episodes",
    "episodes=many": "episodes: Value 'many'",
    "episodes=1.5": "episodes: Value '1.5'",
    "episodes=0": "episodes=0: must be at least 1",
    "num_envs=0": "num_envs=0: must be at least 1",
    "greedy=perhaps": "greedy: Value 'perhaps'",
    "seed=-1": "seed=-1: must lie between 0 and 2147483647",
    "seed=null": "seed: ",
    "precision=float16": "precision=float16: choose one of float32, ",
    "device=tpu": "device=tpu: choose auto, cpu, cuda or cuda:<i>",
    "device=cuda:64": "device=cuda:64: PyTorch sees ",
    "framework=tensorflow": "framework=tensorflow: there is no such choice; choose one of jax_xla",
    "framework=torch_eager framework.num_threads=0": "framework.num_threads=0: must be at least 1, or null",
    "backend=gym": "backend=gym: there is no such choice; choose one of envpool",
    "outputs=''": "outputs=: must name a folder",
    "outputs=/proc/nowhere": "cannot write to /proc/nowhere",
    "episodes": "episodes",
    "--frames": "unrecognized arguments: --frames",
}


def refusal(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that ends with exit code 2."""
    capfd.readouterr()
    assert exit_code(main, arguments) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


@pytest.mark.parametrize(("text", "fragment"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_word_is_one_line_and_nothing_is_written(
    text: str, fragment: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert fragment in refusal([str(run), *text.split(" ")], capfd)
    assert not (run / "evaluations").exists()


def without_checkpoints(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")


def damaged_checkpoint(run: Path) -> None:
    (run / "checkpoints/iteration_00000004/arrays.safetensors").write_bytes(b"\0" * 64)


def of_another_version(run: Path) -> None:
    path = run / "checkpoints/iteration_00000004/state.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 99}))


def another_network(run: Path) -> None:
    config_with(run, network=load_config(["network=mlp", "network.hidden_sizes=[32,32]"]).resolved["network"])


def another_environment(run: Path) -> None:
    acrobot = load_config(["env=acrobot", "backend=gymnasium"]).resolved
    config_with(run, env=acrobot["env"])


DAMAGES = {
    "no checkpoints": (without_checkpoints, "has no checkpoint: name a run folder or one of its checkpoints/iteration"),
    "no such folder": (shutil.rmtree, "has no checkpoint: name a run folder"),
    "damaged checkpoint": (damaged_checkpoint, "is damaged (the checksum of arrays.safetensors does not match)"),
    "another version": (of_another_version, "was written by schema version 99, this is 1"),
    "another network": (another_network, "use the network that it was trained with"),
    "another environment": (another_environment, "use the network that it was trained with"),
    "no run.json": (lambda run: (run / "run.json").unlink(), "has no run.json"),
    "run.json cut off": (lambda run: (run / "run.json").write_text('{"schema'), "run.json is damaged ("),
    "run.json of bytes": (lambda run: (run / "run.json").write_bytes(b"\xff\xfe"), "run.json is damaged ("),
    "run.json of a list": (lambda run: (run / "run.json").write_text("[]"), "run.json is damaged (not an object)"),
    "run.json of nothing": (lambda run: (run / "run.json").write_text("{}"), "is no record of a run by this ppo_bench"),
    "wrong value": (lambda run: config_with(run, total_timesteps="many"), "run.json: total_timesteps: Value 'many'"),
    "no environment": (lambda run: config_with(run, env=None), "run.json: "),
    "unknown key": (lambda run: config_with(run, surprise=1), "run.json: there is no key surprise"),
    "unknown class": (lambda run: config_with(run, framework={"_target_": "os.path"}), "is not a choice of the group"),
}


@pytest.mark.parametrize(("damage", "fragment"), DAMAGES.values(), ids=list(DAMAGES))
def test_a_run_that_cannot_be_evaluated_is_one_line_and_is_left_as_it_is(
    damage: Any, fragment: str, run: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    damage(run)
    before = snapshot(run)
    line = refusal([str(run)], capfd)
    assert fragment in line
    assert "rerun=true" not in line
    assert snapshot(run) == before
    assert not (run / "evaluations").exists()


def test_without_a_run_folder_it_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    assert "RUN_DIR" in refusal([], capfd)
    assert "has no checkpoint: name a run folder" in refusal(["episodes=3"], capfd)
