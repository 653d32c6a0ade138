"""Campaigns: experiments that are sweeps, one for each published table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ppo_bench
from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError, reason
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import expand, sweep_jobs

CAMPAIGN = sorted(path.stem for path in (CONF / "experiment" / "campaign").glob("*.yaml"))


def test_classic_is_sixty_runs_of_each_game() -> None:
    jobs = sweep_jobs(["experiment=campaign/classic"])
    assert len(jobs) == 180
    assert jobs[0] == ["seed=1", "env=cartpole", "framework=torch_eager", "experiment=campaign/classic"]
    assert {word for job in jobs for word in job if word.startswith("seed=")} == {f"seed={k}" for k in range(1, 21)}
    config = load_config(jobs[-1])
    assert (config.root.seed, config.task.id, config.framework.name) == (20, "MountainCar-v0", "jax_xla")
    assert (config.root.total_timesteps, config.ppo.bootstrap_truncated) == (500_000, False)  # CleanRL's


def test_what_the_command_line_gives_is_not_swept() -> None:
    jobs = sweep_jobs(["experiment=campaign/classic", "seed=3,4", "framework=jax_xla"])
    rest = ["framework=jax_xla", "experiment=campaign/classic"]
    assert jobs[:3] == [["seed=3", f"env={game}", *rest] for game in ("cartpole", "acrobot", "mountain_car")]
    assert len(jobs) == 6


@pytest.mark.parametrize("name", CAMPAIGN)
def test_every_run_of_the_campaign_has_a_configuration_and_a_folder_of_its_own(name: str) -> None:
    jobs = sweep_jobs([f"experiment=campaign/{name}"])
    envs = {word.removeprefix("env=") for job in jobs for word in job if word.startswith("env=")}
    assert envs <= {path.stem for path in (CONF / "env").glob("*.yaml")}
    configs = [load_config([*job, "device=cpu"]) for job in (jobs[0], jobs[-1])]
    folders = [folder for config in configs for folder in config.folders]
    assert len(set(folders)) == len(folders) > 1
    assert {config.root.name.partition("/")[0] for config in configs} == {"campaign"}


def test_a_sweep_without_m_is_one_line_and_trains_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["experiment=campaign/classic", "seed=1", f"outputs={tmp_path}"]
    assert exit_code(main, words) == 2
    line = "this experiment is a sweep over env, framework: run it by -m, or give them one value each"
    assert capsys.readouterr().err.splitlines() == [f"ppo_bench: {line}"]
    with pytest.raises(ConfigError, match=f"^{re.escape(line)}$"):
        ppo_bench.train(words)
    assert not list(tmp_path.iterdir())


def test_an_interval_is_for_a_search_alone() -> None:
    words = ["ppo.gamma=interval(0.9,0.99)"]
    assert expand(words, first=True) == [["ppo.gamma=0.9"]]
    with pytest.raises(ConfigError):
        expand(words)


def test_sweeps_expand_lists_ranges_and_globs() -> None:
    assert expand(["seed=range(1,3)", "env=cartpole,acrobot", "ppo.gamma=0.9"]) == [
        ["seed=1", "env=cartpole", "ppo.gamma=0.9"],
        ["seed=1", "env=acrobot", "ppo.gamma=0.9"],
        ["seed=2", "env=cartpole", "ppo.gamma=0.9"],
        ["seed=2", "env=acrobot", "ppo.gamma=0.9"],
    ]
    assert ["network=mlp"] in expand(["network=glob(*)"])


def test_keys_of_a_swept_group_are_those_of_each_job() -> None:
    words = ["framework=torch_compile,jax_xla", "framework.compile_cache=null"]
    assert sweep_jobs(words) == [[f"framework={name}", words[1]] for name in ("torch_compile", "jax_xla")]


def test_the_reason_of_a_failure_is_the_first_line_of_its_error() -> None:
    traceback = ["Traceback (most recent call last):\n", '  File "x.py"\n', "    f()\n"]
    assert reason(1, ["ppo_bench: step 1\n", *traceback, "ValueError: first\n", "  second\n"]) == "ValueError: first"
    chained = [*traceback, "KeyError: 1\n", "\n", "During handling ...\n", "\n", *traceback, "OSError: full\n"]
    assert reason(1, chained) == "OSError: full"
    assert (
        reason(2, ["a library's chatter\n", "ppo_bench: seed=-1: too small\n", "more chatter\n"])
        == "seed=-1: too small"
    )
    ignored = ["Exception ignored in: <function Env.__del__>\n", *traceback, "AttributeError: 'NoneType'\n"]
    assert reason(1, ["ppo_bench: learning diverged\n", *ignored]) == "learning diverged"
    assert reason(3, ["Segmentation fault\n", "\n"]) == "Segmentation fault"
    assert reason(3, []) == "exit code 3"
    assert reason(-9, ["ppo_bench: step 1\n"]) == "killed by SIGKILL"
