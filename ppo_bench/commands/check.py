"""`python -m ppo_bench.check [overrides] | --all`: does an environment on a backend keep the contract? Exit 0 or 1."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import multiprocessing
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from omegaconf import OmegaConf

from ppo_bench.common.cli import Parser, exit_code, parse_overrides
from ppo_bench.common.errors import ConfigError, RunError, one_line
from ppo_bench.common.paths import CONF
from ppo_bench.common.stopping import defer_stop_signals
from ppo_bench.common.workers import set_worker_signals
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.check import Finding, check_contract
from ppo_bench.envs.distribution import compare_distributions
from ppo_bench.envs.envpool import EnvPoolBackend, EnvPoolEnv
from ppo_bench.envs.observation_selection import make_env
from ppo_bench.envs.time_limits import describe_confusion, measure_confusion

NUM_ENVS_OF_DISTRIBUTION = 50

Pair = tuple[str, str, str]
"""The name of an environment, a backend, and the environment's id on that backend."""
Verdict = tuple[str, str, float]
"""A state (ok, FAIL or skipped), its explanation, and the duration of the check in seconds."""


def main(arguments: list[str]) -> int:
    """Check one environment, or all; print a line for each rule, or each environment; 1 if a rule is broken, else 0."""
    parser = Parser("python -m ppo_bench.check", description=__doc__)
    parser.add_overrides("env=..., backend=..., env.id=..., as for a run")
    parser.add_argument("--all", action="store_true", help="every env on every backend that offers it, a line each")
    parser.add_argument("--jobs", type=int, default=1, help="checks to run at a time, with --all (default 1)")
    parser.add_argument("--distribution", action="store_true", help="also compare random play with gymnasium's")
    parser.add_argument("--num-envs", type=int, default=4, help="parallel environments (default 4)")
    parser.add_argument("--num-steps", type=int, help="steps in each (default 1200 to 4800, until episodes have ended)")
    parser.add_argument("--num-episodes", type=int, default=1000, help="episodes for --distribution (default 1000)")
    options = parser.parse_intermixed_args(arguments)
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if options.num_envs < 2 or (options.num_steps is not None and options.num_steps < 2):
        parser.error("--num-envs and --num-steps must be at least 2")
    if options.num_episodes < 100:
        parser.error("--num-episodes must be at least 100")
    if options.all:
        if overrides := parse_overrides(options):
            parser.error(f"--all takes no overrides, not {' '.join(overrides)}")
        return _check_all(options)
    overrides = parse_overrides(options)
    try:
        findings, name = _check(overrides, options)
    except (ConfigError, RunError):
        raise
    except Exception as error:  # whatever the environment's own code raises
        traceback.print_exc()
        print(f"FAIL  it raises in random play: {type(error).__name__}: {one_line(error)}")
        return 1
    for finding in findings:
        print(f"{'ok  ' if finding.holds else 'FAIL'}  {finding.rule}: {finding.evidence}")
    broken = sum(not finding.holds for finding in findings)
    verdict = "keeps the contract" if not broken else f"breaks {broken} of {len(findings)} rules"
    print(f"{name} {verdict}")
    return 1 if broken else 0


def _check(overrides: list[str], options: argparse.Namespace) -> tuple[list[Finding], str]:
    """The findings for the environment that `overrides` choose, and its id and backend in words."""
    config = load_config(overrides)
    config.backend.require()

    def make(num_envs: int) -> VectorEnv | GraphEnv:
        return make_env(config.backend, config.task.with_num_envs(num_envs))

    compared = options.distribution and ("gymnasium" in config.root.env.ids or not options.all)
    reference = _reference(config, overrides) if compared else None
    findings = check_contract(functools.partial(make, options.num_envs), options.num_steps)
    if reference:
        task = dataclasses.replace(reference.task, num_envs=NUM_ENVS_OF_DISTRIBUTION)
        findings += compare_distributions(
            functools.partial(make, task.num_envs), lambda: make_env(reference.backend, task), options.num_episodes
        )
    if _may_confuse(config) and not options.all:
        findings.append(_failures_at_limits(config))
    return findings, f"{config.task.id} on {config.backend.name}"


def _may_confuse(config: Config) -> bool:
    return "envpool" in config.backend.name and not config.task.atari and config.task.players == 1


def _failures_at_limits(config: Config) -> Finding:
    """A finding on terminations that EnvPool reports as truncations. It is never a failure of the check."""
    backend, own_limit = EnvPoolBackend("envpool", 0), EnvPoolEnv(config.task, 1).time_limit
    found = measure_confusion(backend.make, config.task)
    return Finding("a failure at a time limit is taken for the limit", True, describe_confusion(found, own_limit))


def _reference(config: Config, overrides: list[str]) -> Config:
    """The configuration of the same environment on gymnasium. Raises `ConfigError` if gymnasium does not have it."""
    env = config.root.env
    if env.id or "gymnasium" not in env.ids:
        raise ConfigError(
            f"--distribution compares with gymnasium, of which env={env.id or env.name} names no environment"
        )
    return load_config([*(word for word in overrides if not word.startswith("backend")), "backend=gymnasium"])


def offered() -> list[Pair]:
    """All pairs of an env and a backend that its file lists, with the environment's id on that backend."""
    files = {path.stem: _env_file(path.stem) for path in sorted((CONF / "env").glob("*.yaml"))}
    return [(env, backend, env_id) for env, file in files.items() for backend, env_id in file.env.ids.items()]


def _env_file(name: str) -> Any:
    """A file under conf/env merged with the files that it builds on."""
    file: Any = OmegaConf.load(CONF / "env" / f"{name}.yaml")
    bases = [_env_file(base) for base in file.get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return OmegaConf.merge(*bases, file)


def _check_all(options: argparse.Namespace) -> int:
    """Check every environment on every backend that offers it, and print a line for each as soon as it is done.

    Environments whose packages are not installed are reported as skipped. Returns 1 if a check fails, else 0.
    """
    row = "{:<24} {:<12} {:<24} {:>5}  {}"
    print(row.format("env", "backend", "id", "s", "verdict"))
    states = []
    pairs = offered()
    for pair, (state, said, seconds) in zip(pairs, _verdicts(pairs, options), strict=True):
        states.append(state)
        print(row.format(*pair, round(seconds), f"{state}{said}"), flush=True)
    broken, skipped = (states.count(state) for state in ("FAIL", "skipped"))
    left_out = f"; {skipped} were skipped" if skipped else ""
    print((f"{broken} broken" if broken else "every environment that was checked keeps the contract") + left_out)
    return 1 if broken else 0


def _verdicts(pairs: Sequence[Pair], options: argparse.Namespace) -> Iterator[Verdict]:
    """The verdict on each pair, in order, as soon as it is known. A crash of a process is the verdict on its pair."""
    rest, alone = list(pairs), False
    while rest:
        started, batch = time.perf_counter(), rest[:1] if alone else rest
        try:
            with _processes(1 if alone else options.jobs) as pool:
                with defer_stop_signals():  # submitting starts the processes
                    verdicts = [pool.submit(_judge, pair, options) for pair in batch]
                for verdict in verdicts:
                    yield verdict.result()
                    rest.pop(0)
            alone = False
        except BrokenProcessPool:
            if alone:
                yield "FAIL", ": its process crashed", time.perf_counter() - started
                rest.pop(0)
            alone = not alone  # whether this pair crashed, or one that was checked at the same time


@contextmanager
def _processes(number: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of `number` processes, which an interruption (Ctrl-C) kills."""
    with ProcessPoolExecutor(number, multiprocessing.get_context("spawn"), set_worker_signals) as pool:
        try:
            yield pool
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in multiprocessing.active_children():
                process.kill()
            raise


def _judge(pair: Pair, options: argparse.Namespace) -> Verdict:
    started = time.perf_counter()
    try:
        findings, _ = _check([f"env={pair[0]}", f"backend={pair[1]}"], options)
        bad = [f"{finding.rule} ({finding.evidence})" for finding in findings if not finding.holds]
        state, said = ("FAIL", f": {'; '.join(bad)}") if bad else ("ok", f", {len(findings)} rules")
    except ConfigError as error:
        state, said = "skipped", f": {error}"
    except Exception as error:  # reported in the table, which goes on
        state, said = "FAIL", f": {type(error).__name__}: {error}"
    return state, said, time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
