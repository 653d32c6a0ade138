"""Keys of a run that have no meaning in a comparison, and the frameworks that can take part in one."""

from __future__ import annotations

from collections.abc import Callable

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import CONF
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config

LEADER = "torch_eager"


def require_no_run(config: Config, overrides: list[str]) -> None:
    """Raise `ConfigError` if a key asks for what a comparison does not do."""
    root = config.root
    if any(override.startswith("framework=") for override in overrides):
        raise ConfigError("framework= chooses one for a run; here choose several by frameworks=[torch_eager,jax_xla]")
    if root.checkpoint.load is not None:
        raise ConfigError("checkpoint.load has no meaning here: every comparison begins at the seed's initial weights")
    if root.num_seeds > 1:
        raise ConfigError(f"num_seeds={root.num_seeds} has no meaning here: compare one seed after the other")
    for key, given in (
        ("tracker", bool(root.tracker)),
        ("video.every_episodes", bool(root.video.every_episodes)),
        ("evaluation.every_iterations", bool(root.evaluation.every_iterations)),
        ("rerun", root.rerun),
        ("grid", bool(root.grid)),
    ):
        if given:
            raise ConfigError(f"{key} has no meaning here: a comparison leaves no run")


def installed(require: Callable[[str], None]) -> list[str]:
    """The frameworks for which `require` raises no `ConfigError`, the leader first."""
    names = []
    for name in sorted((path.stem for path in (CONF / "framework").glob("*.yaml")), key=lambda n: (n != LEADER, n)):
        try:
            require(name)
            names.append(name)
        except ConfigError as reason:
            say(f"left out: {reason}")
    return names
