"""The Python interface, compared with the commands that do the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
import scipy.special
import scipy.stats

import ppo_bench
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.runners.checkpoint import find, load_named
from tests.training import learnt, rows

WORDS = ["total_timesteps=4096", "ppo.num_envs=4", "device=cpu", "checkpoint.every_iterations=4"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (folder,) = ppo_bench.train([*WORDS, f"outputs={tmp_path_factory.mktemp('runs')}"])
    return folder


def test_a_run_is_trained_loaded_and_tabled(run: Path) -> None:
    assert (run / "result.json").exists()
    assert ppo_bench.train([*WORDS, f"outputs={run.parents[2]}"]) == [run]
    runs, metrics = ppo_bench.results(run), ppo_bench.results(run, "metrics")
    assert runs["final_return_mean"].tolist() == [json.loads((run / "result.json").read_text())["final_return_mean"]]
    assert (runs["ppo.num_envs"].tolist(), runs["ppo.gamma"].tolist()) == ([4], [0.99])
    assert metrics["global_step"].tolist() == list(range(512, 4097, 512))


def test_words_for_hydra_itself_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"hydra\.run\.dir=here"):
        ppo_bench.train(["hydra.run.dir=here"])
    for words in ("env=cartpole", ["--config-dir", "here"]):
        with pytest.raises(ConfigError, match="a list of key=value is expected"):
            ppo_bench.train(words)


def test_an_environment_that_changes_the_current_folder_leaves_the_run_to_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (folder,) = ppo_bench.train(["env.id=tests.broken:Moves-v0", "total_timesteps=512", "device=cpu"])
    assert folder.is_relative_to(tmp_path)
    assert (folder / "result.json").exists()


def test_a_thread_trains_as_a_program_does(run: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        (folder,) = pool.submit(ppo_bench.train, [*WORDS, f"outputs={tmp_path}"]).result()
    assert learnt(folder) == learnt(run)


def test_a_listener_has_each_row_and_what_it_raises_ends_the_training(run: Path, tmp_path: Path) -> None:
    words, heard = [*WORDS, f"outputs={tmp_path}"], list[Mapping[str, Any]]()

    def listen(folder: Path, row: Mapping[str, Any]) -> None:
        assert folder.is_relative_to(tmp_path)
        heard.append(row)
        if len(heard) == 6:
            raise StopIteration

    with pytest.raises(StopIteration):
        ppo_bench.train(words, listen)
    (folder,) = ppo_bench.train(words, listen)  # from the checkpoint after iteration 4
    assert [row["iteration"] for row in heard] == [1, 2, 3, 4, 5, 6, 5, 6, 7, 8]
    assert [*heard[:4], *heard[6:]] == rows(folder)
    assert learnt(folder) == learnt(run)


@pytest.mark.parametrize("framework", [None, "jax_xla"])
def test_a_policy_evaluates_as_the_command_does(framework: str | None, run: Path) -> None:
    found = ppo_bench.load(run, framework=framework).evaluate(episodes=6)
    assert exit_code(evaluate, [str(run), "episodes=6"]) == 0
    (file,) = (run / "evaluations").glob("*-torch_eager-*.json")
    assert found.tolist() == json.loads(file.read_text())["returns"]


def test_a_policy_plays_an_environment_of_the_callers(tmp_path: Path) -> None:
    (folder,) = ppo_bench.train([*WORDS, "network=lstm", "total_timesteps=1024", f"outputs={tmp_path}"])
    trained = ppo_bench.load(folder)
    env = gymnasium.make("CartPole-v1")
    lengths = []
    for _ in range(2):  # the same episode twice: `reset` forgets the first
        trained.reset()
        obs, _ = env.reset(seed=5)
        for t in range(500):
            (action,) = trained.act(obs[None])
            obs, _, terminated, truncated, _ = env.step(int(action))
            if terminated or truncated:
                lengths.append(t)
                break
    assert lengths[0] == lengths[1] > 8


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_a_decision_has_the_networks_values_and_probabilities(framework: str, run: Path) -> None:
    trained = ppo_bench.load(run, greedy=False, framework=framework)
    obs = np.random.default_rng(1).normal(size=(50, 4)).astype(np.float32)
    arrays = load_named(find(run)).arrays

    def computed(part: str) -> np.ndarray:
        x = obs
        for layer in range(3):
            x = x @ arrays[f"params.{part}.{layer}.weight"].T + arrays[f"params.{part}.{layer}.bias"]
            x = np.tanh(x) if layer < 2 else x
        return x

    decision = trained.decide(obs)
    np.testing.assert_allclose(decision.policy_outputs[0], logits := computed("actor"), atol=1e-5)
    np.testing.assert_allclose(decision.values, computed("critic")[:, 0], atol=1e-5)
    probabilities = scipy.special.softmax(logits, -1)
    np.testing.assert_allclose(decision.log_probs, np.log(probabilities[np.arange(50), decision.actions]), atol=1e-5)
    np.testing.assert_allclose(decision.entropies, scipy.stats.entropy(probabilities, axis=-1), atol=1e-5)
    trained.reset()
    np.testing.assert_array_equal(trained.act(obs), decision.actions)
    np.testing.assert_allclose(trained.decide(obs[::-1]).values, decision.values[::-1], atol=1e-5)


def test_a_decision_of_numbers_has_densities_of_what_the_policy_chose(tmp_path: Path) -> None:
    words = [*WORDS, "env.id=Pendulum-v1", "ppo=continuous", "ppo.num_envs=1"]
    (folder,) = ppo_bench.train([*words, f"outputs={tmp_path}"])
    decision = ppo_bench.load(folder, greedy=False).decide(100 * np.ones((200, 3), np.float32))
    policy = scipy.stats.norm(decision.policy_outputs[0], np.exp(decision.policy_outputs[1]))
    np.testing.assert_allclose(decision.log_probs, policy.logpdf(decision.chosen).sum(-1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(decision.entropies, np.broadcast_to(policy.entropy().sum(-1), 200), rtol=1e-4)
    assert decision.values.shape == (200,)
    np.testing.assert_array_equal(decision.actions, np.clip(decision.chosen, -2.0, 2.0))
    assert (np.abs(decision.chosen) > 2.0).any()


@pytest.mark.parametrize(
    ("env_id", "words"),
    [
        ("tests.test_combined:Agreeing-v0", ["network=mlp", "backend=gymnasium"]),  # an image in bytes, and a number
        ("FrozenLake-v1", ["backend=gymnasium"]),  # a choice
        ("Blackjack-v1", ["backend=gymnasium"]),  # a tuple of choices
    ],
)
def test_observations_of_several_parts_are_taken_as_the_environment_gives_them(
    env_id: str, words: list[str], tmp_path: Path
) -> None:
    (folder,) = ppo_bench.train([*WORDS, f"env.id={env_id}", *words, "total_timesteps=512", f"outputs={tmp_path}"])
    env = gymnasium.make(env_id)
    env.observation_space.seed(3)
    observed: list[Any] = [env.observation_space.sample() for _ in range(6)]
    stacked: Any = jax.tree.map(lambda *rows: np.stack(rows), *observed)
    if isinstance(env.observation_space, gymnasium.spaces.Dict):  # bytes beside numbers are divided by 255
        rows: list[Any] = [one | {"camera": one["camera"] / np.float32(255)} for one in observed]
        vectors = np.stack([np.concatenate([row[key].ravel() for key in env.observation_space]) for row in rows])
    else:
        flat: list[Any] = [gymnasium.spaces.flatten(env.observation_space, one) for one in observed]
        vectors = np.stack(flat)
    trained = [ppo_bench.load(folder, greedy=False) for _ in range(2)]
    for _ in range(5):
        np.testing.assert_array_equal(trained[0].act(stacked), trained[1].act(vectors.astype(np.float32)))
    singles = [observed[0]]
    if not isinstance(env.observation_space, gymnasium.spaces.Discrete):  # else a vector is as many choices
        singles.append(vectors[0])
    for single in singles:
        with pytest.raises(ConfigError, match=r"\[N, ...\]"):
            trained[0].act(single)


def test_wrong_use_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"observations of shape \(4,\): expected \[N, ...\]"):
        ppo_bench.load(run).act(np.zeros(4, np.float32))
    with pytest.raises(ConfigError, match=r"observations of several parts: expected one array \[N, ...\]"):
        ppo_bench.load(run).act({"x": np.zeros(4)})
    (folder,) = ppo_bench.train([*WORDS, "env.id=Blackjack-v1", "total_timesteps=512", f"outputs={tmp_path}"])
    with pytest.raises(
        ConfigError, match=r"observations are not arrays .* of the trained environment's, .*: (Index|Value|Key)Error"
    ):
        ppo_bench.load(folder).act((np.zeros(4, int),))
    with pytest.raises(ConfigError, match="seed=2147483648: must lie between 0 and 2147483647"):
        ppo_bench.load(run, seed=2**31)
    with pytest.raises(ConfigError, match="view=losses: choose one of runs, metrics, episodes"):
        ppo_bench.results(run, "losses")
    with pytest.raises(ConfigError, match="unknown env/cartpol"):
        ppo_bench.train(["env=cartpol"])
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        ppo_bench.nothing  # noqa: B018
