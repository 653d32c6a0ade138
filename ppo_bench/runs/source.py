"""Whether a run can start from the checkpoint that `checkpoint.load` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppo_bench.common.errors import ConfigError

if TYPE_CHECKING:
    from ppo_bench.configuration.config import Config


def check_source(config: Config) -> None:
    """Raise `ConfigError` if a run cannot go on from the iteration of the checkpoint that it is to start from."""
    if config.source is None:
        return
    iterations, steps = config.source.loop["iteration"], config.source.loop["global_step"]
    load = f"checkpoint.load={config.root.checkpoint.load}"
    if steps != iterations * config.ppo.batch_size:
        raise ConfigError(
            f"{load} has iterations of {steps // iterations} steps, and ppo.num_envs x ppo.num_steps = "
            f"{config.ppo.batch_size}: choose them so that it is the same"
        )
    if iterations % config.framework.iterations_per_call:
        raise ConfigError(
            f"{load} has done {iterations} iterations, which framework.iterations_per_call="
            f"{config.framework.iterations_per_call} does not divide: choose a divisor"
        )
    if iterations >= config.num_iterations:
        raise ConfigError(
            f"{load} has done {steps} steps, and total_timesteps={config.root.total_timesteps} leaves no iteration of "
            f"{config.ppo.batch_size} after them: ask for more"
        )
