"""What a bench runs: the configurations that its words name."""

from __future__ import annotations

from dataclasses import dataclass

from ppo_bench.compose import offered
from ppo_bench.config import Config, RootSchema, load_config
from ppo_bench.errors import ConfigError
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
    ablation: bool
    scaling: bool
    scales: dict[str, list[int]]
    trace: bool


def schema(config: Config) -> Schema:
    """The root of a bench's configuration."""
    assert isinstance(config.root, Schema)
    return config.root


def load(job: list[str]) -> Config:
    """The configuration of one program, with as many environments as its workload has. Raises `ConfigError`."""
    config = load_config(job, "bench", Schema)
    root = schema(config)
    if root.workload not in WORKLOADS:
        raise ConfigError(f"workload={root.workload}: choose one of {', '.join(WORKLOADS)}")
    for key, value in (("rounds", root.rounds), ("iterations", root.iterations)):
        if value < 1:
            raise ConfigError(f"{key}={value}: must be at least 1")
    if len(chosen := [key for key in ("ablation", "scaling", "trace") if getattr(root, key)]) > 1:
        raise ConfigError(f"{' '.join(f'{key}=true' for key in chosen)}: one at a time")
    if root.num_seeds > 1 and not root.scaling:
        raise ConfigError(f"num_seeds={root.num_seeds}: of the bench, scaling=true alone trains several seeds at once")
    sized = any(word.startswith("ppo.num_envs=") for word in job)
    if root.workload == "canonical" or sized:
        return config
    num_envs = root.throughput_num_envs[config.backend.name]
    steps = num_envs * config.ppo.num_steps * 1_000  # annealing has no end in sight
    return load_config([*job, f"ppo.num_envs={num_envs}", f"total_timesteps={steps}"], "bench", Schema)


def jobs(overrides: list[str]) -> list[list[str]]:
    """The words of every program: what is not chosen is taken in every way that there is."""
    chosen = {word.partition("=")[0] for word in overrides}
    frameworks = sorted((path.stem for path in (CONF / "framework").glob("*.yaml")), reverse=True)
    found = []
    for job in expand(overrides):
        env = next((word.partition("=")[2] for word in job if word.startswith("env=")), "cartpole")
        backends = [[f"backend={backend}"] for name, backend, _ in offered() if name == env]
        for backend in [[]] if "backend" in chosen else backends:
            for framework in [[]] if "framework" in chosen else [[f"framework={name}"] for name in frameworks]:
                words = [*job, *backend, *framework]
                if not _impossible(words):
                    found.append(words)
    if not found:
        load(expand(overrides)[0]).require()  # which says why
    return found


def runnable(overrides: list[str]) -> list[tuple[list[str], Config]]:
    """`jobs` and their configurations, without those that lack a package.

    Raises `ConfigError` if the framework or the backend that is asked for cannot be had.
    """
    found = []
    for job in jobs(overrides):
        config = load(job)
        try:
            config.require()
        except ConfigError as reason:
            if any(word.startswith(("framework=", "backend=")) for word in overrides):
                raise
            say(f"left out: {reason}")
            continue
        found.append((job, config))
    return found


def _impossible(job: list[str]) -> bool:
    config = load(job)
    return config.backend.in_graph and not config.framework.takes_graph_envs
