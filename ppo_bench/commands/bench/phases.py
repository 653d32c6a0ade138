"""Phases of an iteration, measured by two trainings: the configured one, and the same with twice the epochs."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

from ppo_bench.commands.bench.training import WARM_UP_ITERATIONS, StartUp, Training, start_training
from ppo_bench.configuration.config import Config


class Turn(NamedTuple):
    """Durations of one iteration and of its phases, in seconds."""

    iteration: float
    environment: float
    """Environment steps; 0 where they are part of the program."""
    acting: float
    """The rest of a rollout: the policy, transfers to and from the device, normalisation, storage. Where environments
    are part of the program, all of an iteration but the epochs."""
    learning: float
    """All epochs of gradient steps."""
    rest: float
    """Advantages, the values after the last step (in `jax_xla` those of all steps, if the critic is separate),
    transfers, metrics."""


def phases(config: Config) -> Generator[StartUp | Turn, None, None]:
    """Yield what the start took; then durations of an iteration and of its phases, from one run of each measurement."""
    training, start_up = start_training(config)
    # The difference to an iteration with twice the epochs is the duration of the epochs. A process can be in one
    # training of several processes only, so that of these an iteration is not divided.
    doubled = Training(config, 2 * config.ppo.update_epochs) if config.processes == 1 else None
    if doubled:
        for _ in range(WARM_UP_ITERATIONS):
            doubled.iteration()
    yield start_up
    while True:
        iteration, environment, after = training.iteration()
        if doubled is None:
            yield Turn(iteration, 0.0, 0.0, 0.0, iteration)
            continue
        doubled_iteration, _, doubled_after = doubled.iteration()
        if training.timed is None:
            learning = doubled_iteration - iteration
            yield Turn(iteration, 0.0, iteration - learning, learning, 0.0)
            continue
        learning, acting = doubled_after - after, iteration - after - environment
        yield Turn(iteration, environment, acting, learning, after - learning)
