"""The frameworks that can take part in a comparison, and keys of a run that have no meaning in one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import CONF
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.config import Config

LEADER = "torch_eager"


def require_no_run(config: Config, overrides: list[str]) -> None:
    """Raise `ConfigError` if a key asks for what a comparison does not do."""
    root, leaves_no_run = config.root, "a comparison leaves no run"
    if any(override.startswith("framework=") for override in overrides):
        raise ConfigError("framework= chooses one for a run; here choose several by frameworks=[torch_eager,jax_xla]")
    for key, is_given, why in (
        ("checkpoint.load", root.checkpoint.load is not None, "every comparison begins at the seed's initial weights"),
        (f"num_seeds={root.num_seeds}", root.num_seeds > 1, "compare one seed after the other"),
        ("tracker", bool(root.tracker), leaves_no_run),
        ("video.every_episodes", bool(root.video.every_episodes), leaves_no_run),
        ("evaluation.every_iterations", bool(root.evaluation.every_iterations), leaves_no_run),
        ("rerun", root.rerun, leaves_no_run),
        ("grid", bool(root.grid), leaves_no_run),
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
    """The frameworks for which `require` raises no `ConfigError`, the leader first."""
    names = []
    for name in sorted((path.stem for path in (CONF / "framework").glob("*.yaml")), key=lambda n: (n != LEADER, n)):
        try:
            require(name)
            names.append(name)
        except ConfigError as reason:
            print_status(f"left out: {reason}")
    return names
