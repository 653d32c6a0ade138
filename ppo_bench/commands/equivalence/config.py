"""The configuration of one program of a comparison."""

from __future__ import annotations

from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config


def load(overrides: list[str]) -> Config:
    """The configuration of one program. Raises `ConfigError`."""
    config = load_config(overrides)
    require_no_run(config)
    return config


def require_no_run(config: Config) -> None:
    """Raise `ConfigError` if a key asks for what a comparison does not do."""
    root, leaves_no_run = config.root, "a comparison leaves no run"
    for key, is_given, why in (
        ("checkpoint.load", root.checkpoint.load is not None, "every comparison begins at the seed's initial weights"),
        (f"num_seeds={root.num_seeds}", root.num_seeds > 1, "compare one seed after the other"),
        ("grid", bool(root.grid), "compare one set of hyperparameters after the other"),
        ("tracker", bool(config.trackers), leaves_no_run),
        ("video.every_episodes", bool(root.video.every_episodes), leaves_no_run),
        ("evaluation.every_iterations", bool(root.evaluation.every_iterations), leaves_no_run),
        ("rerun", root.rerun, leaves_no_run),
    ):
        if is_given:
            raise ConfigError(f"{key} has no meaning here: {why}")
