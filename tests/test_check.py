"""The checker accepts environments that keep the contract, and names the rule that each broken one breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from ppo_bench.commands import check
from ppo_bench.common.cli import exit_code
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import EnvStep, PolicyInput, VectorEnv
from ppo_bench.envs.check import Finding, check_contract
from ppo_bench.envs.device import DYNAMICS
from ppo_bench.envs.make import make_env
from tests import walks
from tests.walks import Walk

FINITE = "observations and rewards are finite"
OBS_TYPE = "observations have the space's shape and dtype"
STEP_TYPES = "rewards are float32 [N], flags bool [N]"
ENDS = "episodes end within the play"
NO_REWARD = "the step after an end has reward 0"
NO_ACTION = "the step after an end ignores its action"
FINAL_OBS = "an end shows the episode's last observation, not the next one's first"
NO_SECOND_END = "the step after an end does not end"
OVER_IS_DONE = "an episode that is over is done"
TRUNCATED_IS_OVER = "a truncated episode is over"
REWARD_OR_SIGN = "the reward is the game's own or its sign"
SEEDED = "a seed determines everything"
NO_TWINS = "environments differ from each other"
OTHER_SEED = "another seed plays otherwise"
ALONE = "an environment follows from its own seed and actions alone"

GAMES = ("tic_tac_toe", "connect_four", "othello", "kuhn_poker")


def broken(findings: list[Finding]) -> dict[str, str]:
    """The evidence of each rule that is not kept."""
    return {finding.rule: finding.evidence for finding in findings if not finding.holds}


FAST = [
    *((f"env={env} backend=gymnasium", 4, 300, 15) for env in ("cartpole", "hopper")),
    *((f"env={env} backend=envpool", 4, 300, 15) for env in ("cartpole", "hopper", "breakout")),
    *((f"env.id={env_id} backend=device", 4, 1200, 15) for env_id in DYNAMICS),
    # EnvPool itself pays a reward for the reset in this task; its episodes last 1,000 steps.
    ("env=dmc_cartpole_balance backend=envpool", 2, 1010, 15),
    *((f"env={game} backend=envpool", 6, 200, 19) for game in GAMES),
    ("env=othello backend=device", 6, 200, 19),
    # Three players; an interface that takes one action a game; masks in `info` and as part of the observation.
    ("env.id=SparrowMahjong-v1 env.players=3 backend=envpool", 6, 200, 19),
    ("env.id=Go9x9-v1 env.players=2 backend=envpool", 6, 200, 19),
    ("env.id=Play2048-v1 backend=envpool", 6, 200, 16),
    ("env.id=Game2048-v1 backend=envpool", 6, 200, 16),
]
SLOW = [
    ("env=breakout backend=gymnasium", 4, 300, 15),
    ("env=dmc_cartpole_balance backend=gymnasium", 2, 1010, 15),
    ("env=breakout backend=gymnasium env.atari.baselines=true", 2, 150, 15),
    *((f"env={game} backend=device", 6, 200, 19) for game in GAMES if game != "othello"),
    # One of each library: all that differs between its tasks is its own.
    ("env=minatar_space_invaders backend=device", 3, 200, 15),
    ("env.id=gymnax.environments.minatar.breakout:MinBreakout backend=device", 4, 400, 15),
]


@pytest.mark.parametrize(
    ("words", "num_envs", "num_steps", "num_rules"),
    [*FAST, *(pytest.param(*row, marks=pytest.mark.slow) for row in SLOW)],
    ids=str,
)
def test_the_backends_keep_the_contract(words: str, num_envs: int, num_steps: int, num_rules: int) -> None:
    config = load_config([*words.split(), *(["framework=jax_xla"] * words.endswith("device"))])
    findings = check_contract(lambda: make_env(config.backend, config.task.with_num_envs(num_envs)), num_steps)
    assert broken(findings) == {}
    assert len(findings) == num_rules


def test_an_environment_of_ones_own_can_be_checked() -> None:
    assert broken(check_contract(Walk, 60)) == {}


def test_players_of_one_game_may_see_the_same() -> None:
    class TwoPlayers(Walk):
        players = 2

        def __init__(self) -> None:
            super().__init__()
            self.num_envs = 4

        def draw(self) -> np.ndarray:
            return super().draw()[[0, 0, 2, 2]]

        def step(self, actions: np.ndarray) -> EnvStep:
            return super().step(actions[[0, 0, 2, 2]])

    assert broken(check_contract(TwoPlayers, 60)) == {}


@pytest.mark.parametrize(
    ("limit", "plays", "rules"),
    [
        (6, [1200] * 4, []),
        (1000, [1200, 2400, 2400, 2400, 2400], []),  # 3 environments: 3 resets in 1,200 steps, 6 in 2,400
        (5000, [1200, 2400, 4800, 4800, 4800, 4800], [ENDS]),
    ],
)
def test_plays_are_as_long_as_it_takes_to_see_ends(limit: int, plays: list[int], rules: list[str]) -> None:
    seen: list[int] = []

    class Lasting(Walk):
        def reset(self, seeds: Sequence[int]) -> PolicyInput:
            seen.append(0)
            return super().reset(seeds)

        def step(self, actions: np.ndarray) -> EnvStep:
            seen[-1] += 1
            return super().step(actions)

    Lasting.limit = limit
    assert list(broken(check_contract(Lasting))) == rules
    assert seen == plays


@pytest.mark.parametrize(
    ("make", "rules"),
    [
        (walks.IgnoresItsSeed, [OTHER_SEED, ALONE]),
        # Where no two plays agree, whether actions at resets matter cannot be told.
        (walks.SeedsItselfFromWhatCameBefore, [SEEDED]),
        (walks.AllEnvironmentsAreOne, [NO_TWINS, ALONE]),
        (lambda: walks.Changed("rewards are infinite"), [FINITE]),
        (walks.ObservationsAreDouble, [OBS_TYPE]),
        (lambda: walks.Changed("rewards are double"), [STEP_TYPES]),
        (lambda: walks.Changed("flags are integers"), [STEP_TYPES]),
        (walks.NeverEnds, [ENDS]),
        (lambda: walks.Changed("pays for resets"), [NO_REWARD]),
        (walks.HeedsActionsOfResets, [NO_ACTION]),
        (walks.ShowsTheNextStartAtTheEnd, [FINAL_OBS]),
        (lambda: walks.Changed("is over without being done"), [OVER_IS_DONE]),
        (lambda: walks.Changed("is truncated without being over"), [TRUNCATED_IS_OVER]),
        (lambda: walks.Changed("rewards are scaled"), [REWARD_OR_SIGN]),
        (walks.TheFirstPushesTheLast, [ALONE]),
    ],
)
def test_what_is_broken_is_named_and_nothing_else(make: Callable[[], VectorEnv], rules: list[str]) -> None:
    assert list(broken(check_contract(make, 60))) == rules


def test_observations_that_are_not_numbers_are_found() -> None:
    assert FINITE in broken(check_contract(lambda: walks.Changed("observations are nan"), 60))


def test_a_second_end_on_the_reset_step_is_found() -> None:
    evidence = broken(check_contract(lambda: walks.Changed("ends again at once"), 60))[NO_SECOND_END]
    count, total = (int(word) for word in evidence.split() if word.isdigit())
    assert 0 < count < total


@pytest.mark.slow
def test_the_command_prints_a_line_for_each_rule_and_the_verdict(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check.main, ["env=cartpole", "backend=gymnasium", "--num-steps", "300"]) == 0
    out, err = capfd.readouterr()
    *rules, verdict = out.splitlines()
    assert verdict == "CartPole-v1 on gymnasium keeps the contract"
    assert len(rules) == 15
    assert all(line.startswith("ok ") for line in rules)
    assert err == ""


@pytest.mark.slow
def test_the_command_fails_if_a_rule_is_broken(capfd: pytest.CaptureFixture[str]) -> None:
    few = ["--num-steps", "2"]  # no episode is over by then
    assert exit_code(check.main, ["env=cartpole", "backend=gymnasium", *few]) == 1
    out, _ = capfd.readouterr()
    assert f"FAIL  {ENDS}" in out
    assert out.splitlines()[-1] == "CartPole-v1 on gymnasium breaks 1 of 15 rules"


class Crashes(CartPoleEnv):
    """CartPole that raises in its thirtieth step."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 30:
            raise RuntimeError("the pole\nbroke")
        return super().step(action)


gymnasium.register("Crashes-v0", "tests.test_check:Crashes")


@pytest.mark.slow
def test_what_an_environment_raises_is_shown_and_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check.main, ["env.id=tests.test_check:Crashes-v0"]) == 1
    out, err = capfd.readouterr()
    assert out.startswith("FAIL  it raises in random play: ")
    assert "Crashes-v0 raises RuntimeError: the pole broke (" in out
    assert "test_check.py, line " in out
    assert "in step\n    raise RuntimeError" in err
