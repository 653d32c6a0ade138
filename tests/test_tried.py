"""Broken user-defined environments: `check` and training name the fault and the environment in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.check import main as check
from ppo_bench.commands.equivalence.__main__ import main as compare
from ppo_bench.common.cli import exit_code
from tests.broken import Fails
from tests.refusals import assert_refused, assert_untrained

SAYS = {
    "Shape": ": reset returns an observation of shape (3,), its space has (4,)",
    "Parts": ": reset returns an observation of shape (7,), its space has (6,)",
    "MissingPart": " on backend=gymnasium raises AssertionError: ",
    "NoInfo": " on backend=gymnasium raises ValueError: too many values to unpack (expected 2",
    "Raises": " on backend=gymnasium raises KeyError: 'velocity' (",
}


@pytest.mark.parametrize("kind", SAYS)
def test_a_broken_environment_is_named(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    env_id = f"tests.broken:{kind}-v0"
    words = ["backend=gymnasium", f"env.id={env_id}"]
    assert_refused(main, [*words, f"outputs={tmp_path}"], f"{env_id}{SAYS[kind]}", capfd)
    assert_untrained(tmp_path)


def test_check_names_a_broken_environment(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["backend=gymnasium", "env.id=tests.broken:Shape-v0"]
    assert_refused(check, words, f"tests.broken:Shape-v0{SAYS['Shape']}", capfd)


ALONE = [
    ("__init__", 1, "tests.broken:Fails-v0"),
    ("reset", 1, "tests.broken:Fails-v0"),
]
"""Failures of the one environment that is tried first."""
VECTORISED = [
    ("__init__", 2, "tests.broken:Fails-v0"),
    ("reset", 9, "tests.broken:Fails-v0"),
    ("step", 40, "tests.broken:Fails-v0"),
]
ENDED = "a worker process of tests.broken:Fails-v0 has ended"


@pytest.mark.parametrize(
    ("how", "vectorization", "where", "when", "said"),
    [
        *(("exits", "sync", *each) for each in (*ALONE, *VECTORISED)),
        ("exits", "async", *VECTORISED[0]),
        ("exits", "async", "reset", 9, ENDED),
        ("exits", "async", "step", 40, ENDED),
        ("file", "sync", *ALONE[0]),
        ("file", "sync", *VECTORISED[-1]),
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
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("ppo_bench: ")
    assert said in last
    assert code == (2 if (how, when) == ("file", 1) else 1)  # what is found before anything runs is a ConfigError
    if how == "file":
        assert "raises FileNotFoundError: " in last
        assert "level.dat" in last
    elif said != ENDED:
        assert "raises SystemExit: 0 (" in last
        assert "broken.py, line " in last
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize(
    ("kwargs", "words", "said"),
    [
        ("obs:1e300", ["ppo.norm_obs=true"], "an observation of 1e+300, which leaves the range of float32"),
        ("obs:-1e39", [], "an observation of -1e+39, which leaves the range of float32"),
        ("reward:1e300", ["ppo.norm_reward=true"], "a reward of inf, which is not finite"),
    ],
)
def test_a_number_beyond_the_range_of_float32_is_named(
    kwargs: str, words: list[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["backend=gymnasium", "env.id=tests.broken:Vast-v0", f"env.kwargs={{{kwargs}}}", *words]
    assert exit_code(main, [*words, "total_timesteps=4096", f"outputs={tmp_path}"]) == 1
    assert f"environment 0 gave {said}" in capfd.readouterr().err.splitlines()[-1]


def test_an_environment_that_changes_the_current_folder_does_not_move_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = list[Path]()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ppo_bench.commands.equivalence.__main__._compare", lambda _: None)
    monkeypatch.setattr("ppo_bench.commands.equivalence.__main__.report", lambda *_: folders.append(Path.cwd()))
    compare(["env.id=tests.broken:Moves-v0", "total_timesteps=512", "framework=torch_eager,jax_xla"])
    assert folders == [tmp_path]
