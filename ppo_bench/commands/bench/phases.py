"""Phases of an iteration, from three measurements: the training, the same with twice the epochs, and single parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.bench.training import WARM_UP_ITERATIONS, StartUp, TimedEnv, Training, start_training
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.make import make_env
from ppo_bench.envs.random_play import random_actions
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.precision import PRECISIONS


class Turn(NamedTuple):
    """Durations of one iteration and of its phases, in seconds."""

    iteration: float
    environment: float
    """Environment steps."""
    acting: float
    """The rest of a rollout: the policy, transfers to and from the device, normalisation, storage."""
    learning: float
    """All epochs of gradient steps."""
    rest: float
    """Advantages, the values after the last step (in `jax_xla` those of all steps, if the critic is separate),
    transfers, metrics."""
    environment_alone: float
    """The same number of environment steps with random actions and nothing else."""


def phases(config: Config) -> Generator[StartUp | Turn, None, None]:
    """Yield what the start took; then durations of an iteration and of its phases, from one run of each measurement."""
    training, start_up = start_training(config)
    # The difference to an iteration with twice the epochs is the duration of the epochs. A process can be in one
    # training of several processes only, so that of these an iteration is not divided.
    doubled = Training(config, 2 * config.ppo.update_epochs) if config.processes == 1 else None
    if doubled:
        for _ in range(WARM_UP_ITERATIONS):
            doubled.iteration()
    step_alone = _alone(config, bool(training.runner.execution.get("cuda_graphs")))
    yield start_up
    while True:
        iteration, environment, after = training.iteration()
        if doubled is None:
            yield Turn(iteration, 0.0, 0.0, 0.0, iteration, step_alone())
            continue
        doubled_iteration, _, doubled_after = doubled.iteration()
        alone = step_alone()
        if training.timed is None:
            learning = doubled_iteration - iteration
            yield Turn(iteration, alone, iteration - alone - learning, learning, 0.0, alone)
            continue
        learning, acting = doubled_after - after, iteration - after - environment
        yield Turn(iteration, environment, acting, learning, after - learning, alone)


def _alone(config: Config, graphs: bool) -> Callable[[], float]:
    """A function that runs the environment steps of a rollout and returns their duration in seconds.

    With `graphs`, steps of PyTorch on the device are one CUDA graph, as in training.
    """
    env = make_env(config.backend, config.task)
    seeds = noise.env_seeds(config.root.seed, 0, config.ppo.num_envs)
    rng, steps = np.random.default_rng(0), config.ppo.num_steps
    if not isinstance(env, GraphEnv):
        return _alone_on_host(env, seeds, steps, rng)
    actions = np.stack([random_actions(env, rng) for _ in range(steps)])  # type: ignore[arg-type]  # it reads the space
    if config.framework.library == "jax":
        play = _alone_in_jax(env, seeds, actions, config)
    else:
        play = _alone_in_torch(env, seeds, actions, config, graphs)
    for _ in range(WARM_UP_ITERATIONS):
        play()
    return play


def _alone_on_host(env: VectorEnv, seeds: Sequence[int], steps: int, rng: np.random.Generator) -> Callable[[], float]:
    timed, policy_input = TimedEnv(env), env.reset(seeds)

    def play() -> float:
        nonlocal policy_input
        timed.stepping_seconds = 0.0
        for _ in range(steps):
            policy_input = timed.step(random_actions(env, rng, policy_input.action_mask)).policy_input
        return timed.stepping_seconds

    return play


def _alone_in_jax(env: GraphEnv, seeds: Sequence[int], actions: np.ndarray, config: Config) -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    from ppo_bench.runners.jax_device import pick_device

    device = pick_device(config.root.device, PRECISIONS[config.root.precision])
    with jax.default_device(device):
        start, policy_input = env.reset(jnp, seeds)

    def step(state: Any, actions: Any) -> Any:
        envs, action_mask = state
        if action_mask is not None:  # the next legal choice
            distances = (jnp.arange(action_mask.shape[-1]) - actions[:, None]) % action_mask.shape[-1]
            actions = jnp.where(action_mask, distances, action_mask.shape[-1]).argmin(-1)
        envs, given = env.step(envs, actions)
        return (envs, given.action_mask), given

    program = jax.jit(lambda state: jax.lax.scan(step, state, actions))
    state = start, policy_input.action_mask

    def play() -> float:
        nonlocal state
        with jax.default_device(device):  # the device is part of the compilation cache's key
            started = time.perf_counter()
            state = jax.block_until_ready(program(state))[0]
            return time.perf_counter() - started

    return play


def _alone_in_torch(
    env: GraphEnv, seeds: Sequence[int], actions: np.ndarray, config: Config, graphs: bool
) -> Callable[[], float]:
    import torch

    from ppo_bench.runners.cuda_graphs import GraphedCallable
    from ppo_bench.runners.frameworks import Torch
    from ppo_bench.runners.torch_device import pick_device

    assert isinstance(config.framework, Torch)
    device = pick_device(config.root.device, PRECISIONS[config.root.precision])
    start, _ = env.reset(torch, seeds, device=device)
    # Steps of the user's own environments are neither compiled nor recorded in training.
    compiler = None if env.same_step else config.framework.compiler()
    step = compiler(env.step) if compiler else env.step
    on_device = torch.from_numpy(actions).to(device)

    def rollout(fixed: Any, *inputs: torch.Tensor) -> Any:
        state = env.draw_reset_words(fixed[0], len(actions))
        for row in inputs[0]:
            state, given = step(state, row)
        return given.terminated

    function: Callable[..., Any] = GraphedCallable(rollout) if graphs and not env.same_step else rollout

    @torch.inference_mode()
    def play() -> float:
        started = time.perf_counter()
        function((start,), on_device)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter() - started

    return play
