"""Games of turns: each player is a row, and rows that are not to move pass. On EnvPool and in JAX, with learning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.envs.base import EnvStep, PolicyInput, VectorEnv
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.host import to_vector_env
from tests.runners import composed

SMALL = ["ppo.num_envs=8", "ppo.num_steps=32"]


def config_of(game: str, backend: str, *words: str) -> Any:
    return composed(f"env={game}", f"backend={backend}", *(["framework=jax_xla"] * (backend == "device")), *words)


def env_of(game: str, backend: str, rows: int) -> VectorEnv:
    config = config_of(game, backend, f"ppo.num_envs={rows}")
    return to_vector_env(config.backend.make(config.task))


class Careless:
    """Another game's rows, with a fault; `players` are two."""

    players = 2

    def __init__(self, fault: str) -> None:
        self._env, self._fault = env_of("tic_tac_toe", "envpool", 4), fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        return self._env.reset(seeds)

    def step(self, actions: np.ndarray) -> EnvStep:
        step = self._env.step(actions)
        assert step.policy_mask is not None
        assert step.action_mask is not None
        if self._fault == "ends":
            return step._replace(terminated=step.terminated & (np.arange(4) % 2 == 0))
        if self._fault == "turns":
            return step._replace(policy_mask=np.ones(4, bool))
        if self._fault == "passes":
            return step._replace(action_mask=step.action_mask & (step.policy_mask[:, None] | (np.arange(9) > 0)))
        return step._replace(action_mask=step.action_mask & ~step.policy_mask[:, None])


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        ("ends", "the rows of a game end together"),
        ("turns", "one row of a game is to move, and none when it is over"),
        ("passes", "a row that passes may choose anything"),
        ("choices", "one choice of each component is legal"),
    ],
)
def test_the_checker_finds_what_a_game_gets_wrong(fault: str, rule: str) -> None:
    broken = [finding.rule for finding in check_contract(lambda: Careless(fault), 100) if not finding.holds]
    assert rule in broken


class Course(NamedTuple):
    """Games by rows in the order in which their players began; `[T, G, 2, ...]` each."""

    obs: np.ndarray
    rewards: np.ndarray
    policy_mask: np.ndarray
    action_mask: np.ndarray
    done: np.ndarray


def course(env: VectorEnv, words: np.ndarray) -> Course:
    """First games until their ends, with moves by `words [T, G]`: the k-th that is legal, counted around."""
    length, games = words.shape
    policy_input = env.reset(list(range(2 * games)))
    assert policy_input.policy_mask is not None
    order = np.stack([2 * np.arange(games) + first for first in (0, 1)], 1)
    order = np.where(policy_input.policy_mask[::2][:, None], order, order[:, ::-1])
    rows, over = [], np.zeros(games, bool)
    for row in words:
        assert policy_input.policy_mask is not None
        assert policy_input.action_mask is not None
        mover = np.where(over, order[:, 0], order[np.arange(games), policy_input.policy_mask[order].argmax(1)])
        actions = np.zeros(2 * games, np.int64)
        for game, index in enumerate(mover):
            choices = np.flatnonzero(policy_input.action_mask[index])
            actions[index] = choices[row[game] % len(choices)]
        step = env.step(actions)
        policy_input = step.policy_input
        assert policy_input.policy_mask is not None
        assert policy_input.action_mask is not None
        done = step.terminated[order]
        masks = policy_input.policy_mask[order], policy_input.action_mask[order]
        shown = (step.obs[order], step.reward[order], *masks, done)
        rows.append([np.where(over.reshape(-1, *(1,) * (x.ndim - 1)), 0, x) for x in shown])
        over = over | done[:, 0]
    assert over.all() or length < 64
    return Course(*(np.stack(column) for column in zip(*rows, strict=True)))


@pytest.mark.parametrize(
    "game",
    [
        "tic_tac_toe",
        pytest.param("connect_four", marks=pytest.mark.slow),
        pytest.param("othello", marks=pytest.mark.slow),
    ],
)
def test_both_backends_play_the_same_game(game: str) -> None:
    words = np.random.default_rng(1).integers(0, 60, (70, 8))
    host, program = (course(env_of(game, backend, 16), words) for backend in ("envpool", "device"))
    for name in Course._fields:
        assert_array_equal(getattr(host, name), getattr(program, name), name)
    assert set(host.rewards[host.done > 0].tolist()) >= {-1.0, 1.0}
    assert_array_equal(host.rewards.sum(-1), 0.0)


@pytest.mark.parametrize("backend", ["envpool", pytest.param("device", marks=pytest.mark.slow)])
def test_training_counts_games_by_player_and_takes_no_illegal_action(backend: str) -> None:
    """A move against the rules would lose at once: the shortest game of Othello without has nine moves."""
    config = config_of("othello", backend, "ppo.num_envs=16", "ppo.num_steps=128")
    runner = config.framework.runner(config.training_spec(config.backend.make(config.task)))
    state, _, episodes = runner.iterate(runner.init(1))
    runner.close()
    assert len(episodes) >= 16
    assert min(episode.length for episode in episodes) >= 9
    by_game = {(episode.env // 2, episode.step // 16): 0.0 for episode in episodes}
    for episode in episodes:
        by_game[episode.env // 2, episode.step // 16] += episode.episode_return
    assert len(by_game) == len(episodes) // 2
    assert set(by_game.values()) == {0.0}
    assert state is not None


TINY = ["env=tic_tac_toe", "ppo.num_envs=8", "ppo.num_steps=16", "total_timesteps=256", "device=cpu"]


def returns_against_random(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[float]:
    assert exit_code(evaluate, [str(folder), "against=random", "episodes=400", "num_envs=20", *words]) == 0
    printed = capsys.readouterr().out
    assert "against random play" in printed
    found: dict[str, Any] = json.loads(Path(printed.splitlines()[-1]).read_text())
    assert set(found["returns"]) <= {-1.0, 0.0, 1.0}
    assert len(found["returns"]) == 400
    return list(found["returns"])


@pytest.mark.parametrize("backend", ["envpool", pytest.param("device", marks=pytest.mark.slow)])
def test_a_policy_is_evaluated_against_random_play(
    backend: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random play beside random play wins as often as it loses."""
    framework = "jax_xla" if backend == "device" else "torch_eager"
    words = ["env=tic_tac_toe", f"backend={backend}", f"framework={framework}", "device=cpu", f"outputs={tmp_path}"]
    assert exit_code(main, [*words, *TINY[1:3], "total_timesteps=128", "ppo.learning_rate=1e-9"]) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    untrained = returns_against_random(folder, capsys, "greedy=false")
    assert abs(np.mean(untrained)) < 0.2  # four standard deviations
    if backend == "envpool":
        assert returns_against_random(folder, capsys, "greedy=false") == untrained


@pytest.mark.slow
def test_a_policy_learns_to_win_against_random_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After 100,000 steps random play loses three times as often as it wins."""
    words = ["env=tic_tac_toe", "framework=torch_eager", "device=cpu", f"outputs={tmp_path}"]
    assert exit_code(main, [*words, "total_timesteps=100_000"]) == 0
    trained = returns_against_random(Path(capsys.readouterr().out.splitlines()[-1]), capsys)
    assert trained.count(1.0) > 3 * trained.count(-1.0)


def test_only_random_play_is_another_player(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, [*TINY, f"outputs={tmp_path}"]) == 0
    folder = Path(capsys.readouterr().out.splitlines()[-1])
    assert exit_code(evaluate, [str(folder), "against=perfect"]) == 2
    assert "against=perfect: choose random, or leave it out" in capsys.readouterr().err
