"""`python -m ppo_bench.bench [overrides]`: where the time of an iteration goes, against what the machine could do.

Every framework, on every backend that offers the environment, has a process of its own; one at a time has its turn, so
that what else the machine does reaches all of them alike. Lists choose: env=breakout framework=torch_eager,jax_xla
workload=canonical,throughput.
"""

from __future__ import annotations

from dataclasses import dataclass

from ppo_bench.bench.limits import Arithmetic, arithmetic
from ppo_bench.bench.report import Measured, report
from ppo_bench.bench.worker import Program, Turn
from ppo_bench.cli import Parser
from ppo_bench.compose import offered
from ppo_bench.config import Config, RootSchema, load_config
from ppo_bench.errors import ConfigError, require
from ppo_bench.paths import CONF
from ppo_bench.progress import say
from ppo_bench.sweep import expand

WORKLOADS = ("canonical", "throughput")


@dataclass
class Schema(RootSchema):
    """The keys of conf/bench.yaml."""

    workload: str
    throughput_num_envs: dict[str, int]
    rounds: int
    iterations: int


def main(arguments: list[str]) -> int:
    """Measure, print a table, write JSON and a picture for each environment and workload."""
    parser = Parser("python -m ppo_bench.bench", description=__doc__)
    parser.add_argument("overrides", nargs="*", help="as for a sweep; and workload=canonical,throughput rounds=5")
    overrides = parser.parse_args(arguments).overrides
    require("torch", "torch", "the limits of the machine")
    groups: dict[tuple[str, str], list[Config]] = {}
    for job in _jobs(overrides):
        config = _load(job)
        try:
            config.require()
        except ConfigError as reason:
            if any(word.startswith(("framework=", "backend=")) for word in overrides):
                raise
            say(f"left out: {reason}")
            continue
        assert isinstance(config.root, Schema)
        groups.setdefault((config.task.name, config.root.workload), []).append(config)
    for configs in groups.values():
        report(configs, _measure(configs), _arithmetics(configs))
    return 0


def _load(job: list[str]) -> Config:
    """The configuration of one program. Raises `ConfigError`."""
    config = load_config(job, "bench", Schema)
    root = config.root
    assert isinstance(root, Schema)
    if root.workload not in WORKLOADS:
        raise ConfigError(f"workload={root.workload}: choose one of {', '.join(WORKLOADS)}")
    for key, value in (("rounds", root.rounds), ("iterations", root.iterations)):
        if value < 1:
            raise ConfigError(f"{key}={value}: must be at least 1")
    sized = any(word.startswith("ppo.num_envs=") for word in job)
    if root.workload == "canonical" or sized:
        return config
    num_envs = root.throughput_num_envs[config.backend.name]
    steps = num_envs * config.ppo.num_steps * 1_000  # annealing has no end in sight
    return load_config([*job, f"ppo.num_envs={num_envs}", f"total_timesteps={steps}"], "bench", Schema)


def _jobs(overrides: list[str]) -> list[list[str]]:
    """The words of every program: what is not chosen is taken in every way that there is."""
    chosen = {word.partition("=")[0] for word in overrides}
    frameworks = sorted((path.stem for path in (CONF / "framework").glob("*.yaml")), reverse=True)
    jobs = []
    for job in expand(overrides):
        env = next((word.partition("=")[2] for word in job if word.startswith("env=")), "cartpole")
        backends = [[f"backend={backend}"] for name, backend, _ in offered() if name == env]
        for backend in [[]] if "backend" in chosen else backends:
            for framework in [[]] if "framework" in chosen else [[f"framework={name}"] for name in frameworks]:
                words = [*job, *backend, *framework]
                if not _impossible(words):
                    jobs.append(words)
    if not jobs:
        _load(expand(overrides)[0]).require()  # which says why
    return jobs


def _impossible(job: list[str]) -> bool:
    config = _load(job)
    return config.backend.in_graph and not config.framework.takes_graph_envs


def _measure(configs: list[Config]) -> list[Measured]:
    root = configs[0].root
    assert isinstance(root, Schema)
    programs: list[Program] = []
    turns: list[list[Turn]] = [[] for _ in configs]
    try:
        for config in configs:
            programs.append(Program(config))
            say(f"ready: {config.framework.name} on {config.backend.name}")
        for round_ in range(root.rounds):
            for program, taken in zip(programs, turns, strict=True):
                taken += [program.turn() for _ in range(root.iterations)]
            say(f"round {round_ + 1} of {root.rounds}")
        return [Measured(program.start, taken) for program, taken in zip(programs, turns, strict=True)]
    finally:
        for program in programs:
            program.stop()


def _arithmetics(configs: list[Config]) -> list[Arithmetic]:
    """Of each program; those of the same sizes share a measurement."""
    known: dict[int, Arithmetic] = {}
    for config in configs:
        if config.ppo.num_envs not in known:
            known[config.ppo.num_envs] = arithmetic(config)
    return [known[config.ppo.num_envs] for config in configs]
