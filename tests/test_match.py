"""Matches: players of known strength, lines of play counted by hand, checkpoints of every framework, refusals."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.commands.match import main
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import Seen, VectorEnv
from ppo_bench.mathematics.arrays import Arrays, Tree
from ppo_bench.runs import tic_tac_toe
from ppo_bench.runs.match import Game, play_match
from ppo_bench.runs.opponents import Opponent, kuhn, uniform
from tests.evaluations import ON_CPU
from tests.refusals import assert_one_line
from tests.runners import ACTING
from tests.training import trained

TINY = ["env=tic_tac_toe", "ppo.num_envs=8", "ppo.num_steps=16", "checkpoint.every_iterations=1", ON_CPU]
RUN = [*TINY, "total_timesteps=256"]


@dataclass(frozen=True)
class FirstFree:
    """A player who takes the first square that is free."""

    def carry(self, num_envs: int) -> Arrays:
        return {}

    def act(self, t: int, seen: Seen, start: np.ndarray, carry: Tree) -> tuple[np.ndarray, Tree]:
        assert seen.legal is not None
        return seen.legal.argmax(-1), carry


@dataclass(frozen=True)
class Cheat(FirstFree):
    """A player who always takes the first square."""

    def act(self, t: int, seen: Seen, start: np.ndarray, carry: Tree) -> tuple[np.ndarray, Tree]:
        return np.zeros(len(seen.obs), np.int64), carry


def env_of(game: str, rows: int) -> VectorEnv:
    config = load_config([f"env={game}", f"ppo.num_envs={rows}"])
    env: VectorEnv = config.backend.make(config.task)  # type: ignore[assignment]
    return env


def played(game: str, ours: Any, theirs: Any, games: int) -> list[Game]:
    env = env_of(game, 20)
    found = list(play_match(env, 2, ours, theirs, games, seed=1))
    env.close()
    assert len(found) == games
    assert Counter(g.seat for g in found) == {0: (games + 1) // 2, 1: games // 2}
    return found


def test_a_match_that_is_to_stop_ends_with_the_step() -> None:
    """Before any game is over, which takes five moves at least."""
    stop: list[int] = []
    steps: list[int] = []

    class Stops(FirstFree):
        def act(self, t: int, seen: Seen, start: np.ndarray, carry: Tree) -> tuple[np.ndarray, Tree]:
            steps.append(t)
            stop.extend([15] if t == 3 else [])
            return super().act(t, seen, start, carry)

    env = env_of("tic_tac_toe", 4)
    assert list(play_match(env, 2, Stops(), FirstFree(), 50, seed=1, stop=stop)) == []
    env.close()
    assert steps == [0, 1, 2, 3]


def outcomes(games: list[Game]) -> Counter[int]:
    return Counter(int(np.sign(game.returned - game.best_other)) for game in games)


def test_perfect_play_draws_against_itself_and_never_loses() -> None:
    perfect, random = Opponent(tic_tac_toe.perfect, 1), Opponent(uniform(spaces.Discrete(9)), 2)
    assert outcomes(played("tic_tac_toe", perfect, perfect, 101)) == {0: 101}
    ours, theirs = (outcomes(played("tic_tac_toe", *pair, 100)) for pair in ((perfect, random), (random, perfect)))
    assert ours[-1] == theirs[1] == 0
    assert min(ours[1], theirs[-1]) > 70
    even = outcomes(played("tic_tac_toe", random, random, 1000))
    assert abs(even[1] - even[-1]) < 150  # either begins half of the games; five standard deviations


def test_moves_against_the_rules_are_counted_and_lose() -> None:
    games = played("tic_tac_toe", Cheat(), FirstFree(), 20)
    assert {game.illegal for game in games} == {1}
    assert outcomes(games) == {-1: 20}
    assert {game.illegal for game in played("tic_tac_toe", FirstFree(), Cheat(), 20)} == {0}


def test_every_line_of_play_is_counted() -> None:
    """Against the first free square, by every order in which an opponent could want the squares."""
    expected: Counter[str] = Counter()
    for begins in (True, False):
        lines = {line: end for wish in permutations(range(9)) for line, end in [first_free_against(wish, begins)]}
        expected += Counter(lines.values())
    assert tic_tac_toe.all_lines(FirstFree()) == expected
    # Perfect play, without chance: of what is best, the first.
    assert tic_tac_toe.all_lines(FirstOfBest())["losses"] == 0


def first_free_against(wish: tuple[int, ...], begins: bool) -> tuple[tuple[int, ...], str]:
    """The squares in the order in which they are taken, and how that ends for the first free square."""
    rows = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
    taken: list[int] = []
    for turn in range(9):
        ours = (turn % 2 == 0) == begins
        taken.append(next(s for s in (range(9) if ours else wish) if s not in taken))
        own = set(taken[turn % 2 :: 2])
        if any(own.issuperset(row) for row in rows):
            return tuple(taken), "wins" if ours else "losses"
    return tuple(taken), "draws"


class FirstOfBest(FirstFree):
    """A player who takes the first of the best squares."""

    def act(self, t: int, seen: Seen, start: np.ndarray, carry: Tree) -> tuple[np.ndarray, Tree]:
        return tic_tac_toe.perfect(seen, start).argmax(-1), carry


def test_the_equilibrium_of_kuhns_poker_is_worth_what_it_is() -> None:
    """Both play it, every deal and every course by hand: -1/18 for the one who begins (Kuhn 1950)."""
    value = 0.0
    for one in range(3):
        for two in set(range(3)) - {one}:
            high = 1.0 if one > two else -1.0
            bet, call_first = chance(one, begins=True), chance(one, begins=True, called=True)
            bet_second, call = chance(two, begins=False), chance(two, begins=False, called=True)
            after_bet = call * 2 * high + (1 - call) * 1
            after_pass = bet_second * (call_first * 2 * high - (1 - call_first)) + (1 - bet_second) * high
            value += (bet * after_bet + (1 - bet) * after_pass) / 6
    assert value == pytest.approx(-1 / 18, abs=1e-15)
    returns = [
        game.returned for game in played("kuhn_poker", Opponent(kuhn, 1), Opponent(kuhn, 1), 4000) if game.seat == 0
    ]
    assert abs(np.mean(returns) + 1 / 18) < 0.15  # five standard deviations of 2,000 games


def chance(card: int, begins: bool, called: bool = False) -> float:
    """How often the equilibrium bets, or calls a bet."""
    obs = np.zeros((1, 7), bool)
    obs[0, [card, 3, 6 if called else 5]] = True
    return float(kuhn(Seen(obs), np.array([begins]))[0, 0])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations of tic-tac-toe."""
    return trained(tmp_path_factory.mktemp("runs"), *RUN)


@pytest.fixture(scope="module")
def connect_four(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations of Connect Four."""
    return trained(tmp_path_factory.mktemp("connect_four"), *RUN, "env=connect_four")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert exit_code(main, [*words, ON_CPU]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_match_ends_with_a_line_of_json_and_repeats(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (said(capsys, str(run), "games=31", f"seed={seed}") for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first["games"] == 31 == first["wins"] + first["draws"] + first["losses"]
    assert first["illegal"] == 0
    assert len(first["return_mean_by_seat"]) == 2
    perfect = said(capsys, str(run), "games=20", "against=perfect")
    assert (perfect["games"], perfect["wins"]) == (20, 0)
    lines = said(capsys, str(run), "against=all")
    assert lines["games"] == lines["wins"] + lines["draws"] + lines["losses"] > 500


def test_two_checkpoints_play_each_other(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    begun, newest = (run / "checkpoints" / f"iteration_{k:08d}" for k in (1, 2))
    one = said(capsys, str(newest), f"against={begun}", "games=40")
    other = said(capsys, str(begun), f"against={newest}", "games=40")
    assert one["games"] == other["games"] == 40
    assert (one["wins"], one["losses"]) == (other["losses"], other["wins"])
    assert one["return_mean_by_seat"] == [-mean for mean in reversed(other["return_mean_by_seat"])]


@pytest.mark.parametrize("framework", ACTING)
def test_a_checkpoint_of_every_framework_plays_one_of_another(
    framework: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(tmp_path, *RUN, f"framework={framework}", "network=lstm")
    assert said(capsys, str(folder), f"against={run}", "games=10")["games"] == 10


def test_games_in_a_program_are_matched_evaluated_and_filmed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = trained(tmp_path, *RUN, "framework=jax_xla", "backend=jax")
    assert exit_code(main, [str(folder), "games=10", ON_CPU]) == 0
    assert exit_code(evaluate, [str(folder), "episodes=3", "video=true", ON_CPU]) == 0
    film = Path(capfd.readouterr().out.splitlines()[-2])
    assert film.suffix == ".mp4"
    assert film.stat().st_size > 1000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["against=perfect"], "against=perfect: ConnectFour-v1 is too large to be played perfectly; that is for "),
        (["against=all"], "against=all: ConnectFour-v1 has too many lines of play; that is for env=tic_tac_toe"),
        (["games=0"], "games=0: must be at least 1"),
        (["game=3"], "there is no key game; did you mean games?"),
        (["against=nowhere"], "nowhere has no checkpoint"),
        (["seed=-1"], "seed=-1: must lie between 0 and 2147483647"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], message: str, connect_four: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [str(connect_four), *words]) == 2
    error = capfd.readouterr().err
    assert_one_line(error, message)
    assert error.startswith(f"ppo_bench: {message}")


def test_players_of_other_games_are_refused(
    run: Path, connect_four: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [str(run), f"against={connect_four}"]) == 2
    assert capfd.readouterr().err.endswith(f"against={connect_four}: it plays connect_four, and not tic_tac_toe\n")
    pole = trained(tmp_path, *RUN, "env=cartpole", "backend=gymnasium")
    assert exit_code(main, [str(pole)]) == 2
    assert "CartPole-v1 is for one player" in capfd.readouterr().err
    assert exit_code(main, [str(run), "against=all", "greedy=false"]) == 2
    assert "always taken" in capfd.readouterr().err
