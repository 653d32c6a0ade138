"""The configuration of a comparison with a script."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from hydra.core.config_store import ConfigStore

from ppo_bench.commands.equivalence.cleanrl.patches import NEUTRALISED
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.configuration.schema import RootSchema
from ppo_bench.envs.make import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.array_specs import initial_arrays
from ppo_bench.runners.base import TrainingSpec


@dataclass
class AgainstSchema(RootSchema):
    """The keys of conf/against.yaml."""

    against: str
    iterations: int
    frameworks: list[str] | None
    leave_out: list[str]
    arguments: list[str]


ConfigStore.instance().store("AgainstSchema", AgainstSchema)


def schema(config: Config) -> AgainstSchema:
    """The root of a comparison's configuration."""
    assert isinstance(config.root, AgainstSchema)
    return config.root


def script_path(config: Config) -> Path:
    """The script's file."""
    return Path(schema(config).against).expanduser().resolve()


def load(overrides: Sequence[str]) -> Config:
    """The configuration of either side, whose environments never restart, as CleanRL's do not."""
    config = load_config([*overrides, "checkpoint.every_iterations=1_000_000"], "against")
    root, script = schema(config), script_path(config)
    if not script.is_file():
        raise ConfigError(
            f"against={root.against}: the file is missing; name a script in a copy of CleanRL's repository"
        )
    spec = SCRIPTS.get(script.stem)
    if spec is None:
        raise ConfigError(f"against={script.name}: it is not known here; there are {', '.join(SCRIPTS)}")
    if spec.logs and "charts/learning_rate" not in script.read_text(encoding="utf-8"):
        raise ConfigError(f"against={script}: it does not log charts/learning_rate, as CleanRL's scripts do")
    if config.ppo.mask_resets and not spec.masks_resets:
        raise ConfigError("ppo.mask_resets=true: this script learns from reset steps, too; leave it out")
    if not 1 <= root.iterations <= config.num_iterations:
        raise ConfigError(f"iterations={root.iterations}: must lie between 1 and {config.num_iterations}")
    if unknown := set(root.leave_out) - NEUTRALISED.keys():
        raise ConfigError(f"leave_out={sorted(unknown)}: there are {', '.join(NEUTRALISED)}")
    return config


def initial_state(config: Config) -> tuple[TrainingSpec, Arrays]:
    """What is trained, and the arrays that the training begins with."""
    with closing(make_env(config.backend, config.task)) as env:
        training_spec = config.training_spec(env)
        return training_spec, initial_arrays(training_spec, config.root.seed)
