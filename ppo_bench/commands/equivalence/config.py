"""The configuration of one program of a comparison."""

from __future__ import annotations

from ppo_bench.commands.programs import require_no_run
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config


def load(overrides: list[str]) -> Config:
    """The configuration of one program. Raises `ConfigError`."""
    config = load_config(overrides)
    require_no_run(config)
    return config
