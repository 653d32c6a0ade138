"""The configuration of one program of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field

from hydra.core.config_store import ConfigStore

from ppo_bench.commands.programs import require_no_run
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import AT_LEAST_1
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.configuration.schema import RootSchema


@dataclass
class BenchSchema(RootSchema):
    """The keys of conf/bench.yaml; it explains them."""

    rounds: int = field(metadata=AT_LEAST_1)
    iterations: int = field(metadata=AT_LEAST_1)
    trace: bool


ConfigStore.instance().store("BenchSchema", BenchSchema)


def schema(config: Config) -> BenchSchema:
    """The root of a benchmark's configuration."""
    assert isinstance(config.root, BenchSchema)
    return config.root


def load(job: list[str]) -> Config:
    """The configuration of one program. Raises `ConfigError`."""
    if any(word.startswith("total_timesteps=") for word in job):
        raise ConfigError("total_timesteps: a bench ends after its rounds and iterations; leave it out")
    config = load_config(job, "bench")
    require_no_run(config)
    if config.ppo.target_kl is not None:
        raise ConfigError(f"ppo.target_kl={config.ppo.target_kl}: a bench measures all epochs; use ppo.target_kl=null")
    return config
