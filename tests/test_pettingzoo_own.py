"""User-defined games of PettingZoo's API: continuous actions, random opponents, and games that are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import AECEnv, ParallelEnv

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.envs.base import Task
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.pettingzoo import PettingZooBackend
from ppo_bench.envs.random_play import random_actions

# --- Games of floats --------------------------------------------------------------------------------------------------


class Pulling(ParallelEnv[str, np.ndarray, np.ndarray]):  # type: ignore[misc]
    """Tug of war: who pulls harder in each of five steps gets a point of the other."""

    metadata = {"name": "pulling"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 5, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Box(-2, 2, (2,), np.float32)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self._steps = ["a", "b"], 0
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        assert all(abs(action).max() <= 2 for action in actions.values())  # within the bounds
        self._steps += 1
        lead = float(np.sign(actions["a"][0] - actions["b"][0]))
        over = dict.fromkeys("ab", self._steps == 5)
        return self._seen(), {"a": lead, "b": -lead}, over, dict.fromkeys("ab", False), {agent: {} for agent in "ab"}

    def _seen(self) -> dict[str, np.ndarray]:
        return {agent: np.array([self._steps], np.float32) for agent in "ab"}


@pytest.fixture
def pulling() -> Iterator[list[str]]:
    import pettingzoo

    pettingzoo.register("parallel", "test/pulling-v0", f"{__name__}:Pulling")
    yield ["backend=pettingzoo", "env.id=test/pulling-v0", "env.players=2", "ppo=continuous", "framework=torch_eager"]
    del pettingzoo.parallel_registry["test/pulling-v0"]


def test_games_of_floats_keep_the_contract(pulling: list[str]) -> None:
    assert check_contract(
        lambda: PettingZooBackend("pettingzoo", "sync").make(Task("any", "test/pulling-v0", 4, players=2)), 60
    )[-1].holds


@pytest.mark.slow
def test_a_game_at_once_is_evaluated_against_random_play(
    tmp_path: Path, pulling: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    game = ["backend=pettingzoo", "env.id=classic/rps-v2", "env.players=2", "framework=torch_eager"]
    sizes = ["ppo.num_envs=4", "ppo.num_steps=16", "total_timesteps=64"]
    for words in (game, [*pulling, "ppo.num_minibatches=4"]):
        assert exit_code(main, [*words, *sizes, f"outputs={tmp_path}"]) == 0
    for folder in (path.parent for path in tmp_path.rglob("result.json")):
        assert exit_code(evaluate, [str(folder), "against=random", "episodes=6", "num_envs=3"]) == 0
        result = json.loads(Path(capsys.readouterr().out.splitlines()[-1]).read_text())
        assert (result["against"], result["envs"]) == ("random", [0, 0, 3, 3, 4, 4])


class Choosing(AECEnv[str, np.ndarray, int]):  # type: ignore[misc]
    """A game in turns, `b` first, with three choices; `infos` of the player to move alone say that 1 is legal."""

    metadata = {"name": "choosing", "is_parallelizable": False}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        self.agents, self._moves = ["a", "b"], 0
        self.rewards, self._cumulative_rewards = dict.fromkeys("ab", 0.0), dict.fromkeys("ab", 0.0)
        self.terminations, self.truncations = dict.fromkeys("ab", False), dict.fromkeys("ab", False)
        self._turn("b")

    def step(self, action: int | None) -> None:
        if self.terminations[self.agent_selection]:
            self._was_dead_step(action)
            return
        assert action == 1, "not legal"
        self._moves += 1
        self.terminations = dict.fromkeys("ab", self._moves == 4)
        self._turn("ba"[self._moves % 2])

    def observe(self, agent: str) -> np.ndarray:
        return np.zeros(2, np.float32)

    def _turn(self, agent: str) -> None:
        self.agent_selection = agent
        self.infos: dict[str, Any] = {"a": {}, "b": {}}
        if self._moves < 4:
            self.infos[agent] = {"action_mask": np.array([0, 1, 0], np.int8)}


def test_the_player_to_move_alone_may_have_a_mask_in_infos(monkeypatch: pytest.MonkeyPatch) -> None:
    import pettingzoo

    pettingzoo.register("aec", "test/choosing-v0", f"{__name__}:Choosing")
    env = PettingZooBackend("pettingzoo", "sync").make(Task("any", "test/choosing-v0", 4, players=2))
    policy_input, rng = env.reset([1, 2, 3, 4]), np.random.default_rng(0)
    for move in range(8):
        assert policy_input.action_mask is not None
        assert sorted(policy_input.action_mask.sum(1).tolist()) in ([1, 1, 3, 3], [3] * 4), move
        policy_input = env.step(random_actions(env, rng, policy_input.action_mask)).policy_input
    env.close()
    del pettingzoo.aec_registry["test/choosing-v0"]


# --- Refusals ---------------------------------------------------------------------------------------------------------


class Leaving(ParallelEnv[str, np.ndarray, int]):  # type: ignore[misc]
    """A game of two in which `b` leaves after three steps."""

    metadata = {"name": "leaving"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._steps, self.agents = 0, ["a", "b"]
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self._steps += 1
        ends = {"a": False, "b": self._steps == 3}
        given = {agent: np.zeros(2, np.float32) for agent in "ab"}
        return given, dict.fromkeys("ab", 0.0), ends, dict.fromkeys("ab", False), {agent: {} for agent in "ab"}


class Unlike(Leaving):
    """A game whose players see different things."""

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (2 if agent == "a" else 3,), np.float32)


class Masked(Leaving):
    """A game whose masks in `infos` get wider."""

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        obs, infos = super().reset(seed, options)
        return obs, {agent: {"action_mask": np.ones(2, np.int8)} for agent in infos}

    def step(self, actions: Any) -> Any:
        *given, infos = super().step(actions)
        return *given, {agent: {"action_mask": np.ones(3, np.int8)} for agent in infos}


def last_line(capfd: pytest.CaptureFixture[str], tmp_path: Path, *words: str, code: int = 2) -> str:
    """The last line of a training that ends with this exit code."""
    assert exit_code(main, [f"outputs={tmp_path}", "framework=torch_eager", *words]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert code == 1 or (err.count("\n"), list(tmp_path.rglob("run.json"))) == (1, [])
    return err.splitlines()[-1].removeprefix("ppo_bench: ")


@pytest.mark.parametrize(
    ("entry", "code", "line"),
    [
        ("Leaving", 1, "test/game-v0: b ended before a: environments whose agents come and go are not supported"),
        ("Masked", 1, "test/game-v0, a: its 'action_mask' has 3 entries, and its actions 2 choices"),
        ("Unlike", 2, "test/game-v0: a and b have other spaces, and one network is to play both"),
    ],
)
def test_players_that_one_network_cannot_play_are_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], entry: str, code: int, line: str
) -> None:
    import pettingzoo

    pettingzoo.register("parallel", "test/game-v0", f"{__name__}:{entry}")
    try:
        words = ("backend=pettingzoo", "env.id=test/game-v0", "env.players=2")
        assert last_line(capfd, tmp_path, *words, code=code).startswith(line)
    finally:
        del pettingzoo.parallel_registry["test/game-v0"]
