"""The configuration of a comparison, and the frameworks that can take part in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.configuration.schema import RootSchema, with_free_keys


@dataclass
class EquivalenceSchema(RootSchema):
    """The keys of conf/equivalence.yaml."""

    frameworks: list[str] | None
    variants: dict[str, Any] | None


ConfigStore.instance().store("EquivalenceSchema", with_free_keys(EquivalenceSchema, "variants"))


def load(overrides: list[str]) -> Config:
    """The configuration of a comparison, or of one framework in it."""
    return load_config(overrides, "equivalence")


def require_no_run(config: Config, overrides: list[str]) -> None:
    """Raise `ConfigError` if a key asks for what a comparison does not do."""
    root, leaves_no_run = config.root, "a comparison leaves no run"
    if any(override.startswith("framework=") for override in overrides):
        raise ConfigError("framework= chooses one for a run; here choose several by frameworks=[torch_eager,jax_xla]")
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


def configs_by_framework(
    load: Callable[[list[str]], Config],
    overrides: list[str],
    frameworks: list[str] | None,
    variants: Sequence[list[str]] = ([],),
    require: Callable[[Config], None] = Config.require,
) -> dict[str, Config]:
    """The configuration of each framework in each variant, by their names; None takes all installed frameworks."""
    names = frameworks or _installed_frameworks(lambda name: require(load([*overrides, f"framework={name}"])))
    configs = {
        " ".join((name, *variant)): load([*overrides, f"framework={name}", *variant])
        for name in names
        for variant in variants
    }
    for config in configs.values():
        require(config)
    return configs


def _installed_frameworks(require: Callable[[str], None]) -> list[str]:
    """The frameworks for which `require` raises no `ConfigError`."""
    names = []
    for name in FRAMEWORKS:
        try:
            require(name)
            names.append(name)
        except ConfigError as reason:
            print_status(f"left out: {reason}")
    return names
