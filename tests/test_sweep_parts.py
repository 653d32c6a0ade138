"""Parts of a sweep: jobs expanded from overrides, reasons of failures, CPUs of a job."""

from __future__ import annotations

import pytest

from ppo_bench.common.errors import ConfigError, reason
from ppo_bench.sweeps.expand import expand, sweep_jobs


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
