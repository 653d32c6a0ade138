"""Broken user-defined environments: `check` and training name the fault and the environment in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.check import main as check
from ppo_bench.common.cli import exit_code
from ppo_bench.envs.base import Task
from tests.broken import Fails
from tests.refusals import assert_one_line, assert_untrained
from tests.test_envs import BACKENDS

DECLARED = "and its observation_space says (4,) and float32"
SAYS = {
    "Shape": f"reset gives an observation of shape (3,) and type float32, {DECLARED}",
    "OldApi": "step gives 4 values, and not the five of gymnasium: (observation, reward, terminated, truncated, info); "
    "four are those of gym before 0.26",
    "TooLarge": "reset gives an observation that is not within the range of float32",
    "NoInfo": "reset gives an array of shape (4,) alone, and not (observation, info)",
    "Raises": "step raises KeyError: 'velocity'",
    "Parts": "reset gives obs['b'] of shape (3,) and type float32, and its observation_space says (2,) and float32",
}
WRAPPED = {
    "WrapsReward": "step gives a reward of shape (1,), and not a number",
    "WrapsOldApi": "step gives 4 values, and not the five of gymnasium: (observation, reward, terminated, truncated, ",
}


@pytest.mark.parametrize("kind", SAYS)
def test_a_broken_environment_is_named(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env_id = f"tests.broken:{kind}-v0"
    words = ["backend=gymnasium", f"env.id={env_id}"]
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 2
    assert_one_line(capfd.readouterr().err, f"{env_id}: {SAYS[kind]}")
    assert_untrained(tmp_path)


def test_check_names_a_broken_environment(capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(check, ["backend=gymnasium", "env.id=tests.broken:Shape-v0"]) == 2
    assert_one_line(capfd.readouterr().err, f"tests.broken:Shape-v0: {SAYS['Shape']}")


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_broken_wrapper_is_named(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env_id, wrapper = "tests.broken:Sound-v0", f"env.wrappers=[{{_target_:tests.broken.{kind}}}]"
    assert exit_code(main, ["backend=gymnasium", f"env.id={env_id}", wrapper, f"outputs={tmp_path}"]) == 2
    assert_one_line(capfd.readouterr().err, f"{env_id} in its wrappers: {WRAPPED[kind]}")
    assert_untrained(tmp_path)


def test_a_wrapper_may_repair_an_environment() -> None:
    repaired = Task("x", "tests.broken:Type-v0", 2, wrappers=({"_target_": "tests.broken.Repair"},))
    BACKENDS["gymnasium-sync"](repaired).close()


ALONE = [
    ("__init__", 1, "tests.broken:Fails-v0"),
    ("step", 1, "tests.broken:Fails-v0: step"),
]
"""Failures of the one environment that is tried first."""
VECTORISED = [
    ("__init__", 2, "environment 0 of tests.broken:Fails-v0: its constructor"),
    ("reset", 9, "of tests.broken:Fails-v0: reset"),
    ("step", 40, "of tests.broken:Fails-v0: step"),
]


@pytest.mark.parametrize(
    ("how", "vectorization", "where", "when", "said"),
    [
        *(("exits", "sync", *each) for each in (*ALONE, *VECTORISED)),
        *(("exits", "async", *each) for each in VECTORISED),
        ("file", "sync", *ALONE[0]),
        ("file", "async", *VECTORISED[-1]),
    ],
)
def test_an_exit_or_a_missing_file_of_an_environment_is_its_failure(
    how: str, vectorization: str, where: str, when: int, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    Fails.calls.clear()
    kwargs = f"env.kwargs={{how:{how},where:{where},when:{when}}}"
    words = ["backend=gymnasium", "env.id=tests.broken:Fails-v0", kwargs, f"backend.vectorization={vectorization}"]
    code = exit_code(main, [*words, "ppo.num_steps=16", "total_timesteps=512", f"outputs={tmp_path}"])
    lines = capfd.readouterr().err.splitlines()
    assert all(line.startswith("ppo_bench: ") for line in lines)
    if how == "file" and when == 1:  # found before anything runs, as any error
        assert code == 2
        assert "tests.broken:Fails-v0" in lines[-1]
    else:
        assert code == 1
        assert f"{said} raises {'SystemExit: 0' if how == 'exits' else 'FileNotFoundError'}" in lines[-1]
        assert "broken.py, line " in lines[-1]
    assert how == "exits" or "level.dat" in lines[-1]
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize(
    ("kwargs", "words", "said"),
    [
        ("obs:1e300", ["ppo.norm_obs=true"], "an observation of 1e+300, which leaves the range of float32"),
        ("reward:-1e25", [], "a reward of -1e+25, which is too large to be squared in float32: ppo.norm_reward=true "),
    ],
)
def test_a_number_beyond_the_range_of_float32_is_named(
    kwargs: str, words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["backend=gymnasium", "env.id=tests.broken:Vast-v0", f"env.kwargs={{{kwargs}}}", *words]
    assert exit_code(main, [*words, "total_timesteps=4096", f"outputs={tmp_path}"]) == 1
    assert f"environment 0 gave {said}" in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("words", [["ppo.norm_reward=true"], ["precision=float64"]])
def test_a_reward_that_is_normalised_or_squared_in_float64_may_be_larger(words: list[str], tmp_path: Path) -> None:
    words = ["backend=gymnasium", "env.id=tests.broken:Vast-v0", "env.kwargs={reward:1e25}", *words]
    assert exit_code(main, [*words, "total_timesteps=4096", f"outputs={tmp_path}"]) == 0
