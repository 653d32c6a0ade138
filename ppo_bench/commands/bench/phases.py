"""Where the time of an iteration goes: a program's training, one with twice the epochs, and its parts alone."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.bench.laps import WARM_UP_ITERATIONS, Laps, Training
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.observed import make_env
from ppo_bench.envs.random_play import random_actions
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.precision import PRECISIONS


class Turn(NamedTuple):
    """Seconds of one iteration."""

    iteration: float
    environment: float
    inference: float
    """Forward passes of the policy, with the way of observations to the device and back."""
    acting: float
    """The rest of a rollout: noise, sampling, normalisation, storing. Inference is part of it where it cannot be run
    alone as it is run in training: inside a JAX program, and as a CUDA graph."""
    learning: float
    """All epochs of gradient steps."""
    rest: float
    """Advantages, the values after the last step, transfers, metrics."""
    environment_alone: float
    """As many steps with random actions and nothing else."""


class Phases:
    """What a program's process measures where the parts of an iteration are asked for."""

    def __init__(self, config: Config) -> None:
        self._config = config
        laps = Laps(config)
        self.start, self._training = laps.start, laps.training
        # What more an iteration takes with twice the epochs is what the epochs take.
        self._doubled = Training(config, 2 * config.ppo.update_epochs)
        for _ in range(WARM_UP_ITERATIONS):
            self._doubled.iteration()
        self._alone = _alone(config)
        replayed = self._training.runner.execution.get("cuda_graphs")
        self._inference = None if self._training.timed is None or replayed else self._policy()

    def turn(self) -> Turn:
        """One iteration of each, and every part alone."""
        iteration, environment, after = self._training.iteration()
        doubled, _, doubled_after = self._doubled.iteration()
        alone = self._alone()
        if self._training.timed is None:
            learning = doubled - iteration
            return Turn(iteration, alone, 0.0, iteration - alone - learning, learning, 0.0, alone)
        learning, inference = doubled_after - after, self._inference() if self._inference else 0.0
        acting = iteration - after - environment - inference
        return Turn(iteration, environment, inference, acting, learning, after - learning, alone)

    def _policy(self) -> Any:
        """A function that infers as often as a rollout does, and returns how long that took."""
        config, training = self._config, self._training
        (arrays,) = training.runner.export(training.state)
        policy = config.framework.policy(training.network, arrays, config.root.precision, config.root.device)
        shape = (config.ppo.num_envs, *training.network.input_shape)
        obs = np.zeros(shape, np.uint8 if training.network.uint8 else np.float32)
        start = np.zeros(config.ppo.num_envs, bool)
        carry = {c.name: arrays[f"envs.carry.{c.name}"] for c in training.network.carry}
        policy(obs, start, carry)

        def infer() -> float:
            started = time.perf_counter()
            for _ in range(config.ppo.num_steps):
                policy(obs, start, carry)
            return time.perf_counter() - started

        return infer


def _alone(config: Config) -> Any:
    """A function that steps environments as often as a rollout does, and returns how long that took."""
    env, steps = make_env(config.backend, config.task), config.ppo.num_steps
    seeds = noise.env_seeds(config.root.seed, 0, config.ppo.num_envs)
    if isinstance(env, GraphEnv):
        return _alone_in_program(env, seeds, steps, config)
    env.reset(seeds)
    actions = _actions(env, steps)

    def play() -> float:
        started = time.perf_counter()
        for t in range(steps):
            env.step(actions[t])
        return time.perf_counter() - started

    return play


def _actions(env: VectorEnv | GraphEnv, steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [random_actions(env, rng) for _ in range(steps)]  # type: ignore[arg-type]  # looks at the space alone


def _alone_in_program(env: GraphEnv, seeds: Any, steps: int, config: Config) -> Any:
    import jax

    from ppo_bench.runners.jax_device import pick_device

    device = pick_device(config.root.device, PRECISIONS[config.root.precision])
    with jax.default_device(device):
        start = env.reset(seeds)
        actions = np.stack(_actions(env, steps))
        program = jax.jit(lambda state: jax.lax.scan(start.step, state, actions))
    state = start.state

    def play() -> float:
        nonlocal state
        with jax.default_device(device):  # part of what a compiled program is found by
            started = time.perf_counter()
            state = jax.block_until_ready(program(state))[0]
            return time.perf_counter() - started

    for _ in range(WARM_UP_ITERATIONS):
        play()
    return play
