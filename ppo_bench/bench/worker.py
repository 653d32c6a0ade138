"""The process of one program: it trains iterations whenever it has its turn, and says where the time went."""

from __future__ import annotations

import dataclasses
import multiprocessing
import resource
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

from ppo_bench import noise
from ppo_bench.bench.timed import TimedEnv
from ppo_bench.config import Config
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.random_play import random_actions
from ppo_bench.errors import ConfigError, Failed
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.runners.base import Problem, Runner

WARM_UP_ITERATIONS = 2
"""The first compiles, the second may compile what the first left in other shapes."""


class Start(NamedTuple):
    """What a program took before its first turn."""

    setup_seconds: float
    """Environments, network and initial weights; not the import of packages."""
    compile_seconds: float
    """How much longer the first iteration took than the second."""
    peak_memory_bytes: int
    """Of the process, environments included."""
    gpu_memory_bytes: int | None
    """The most that the framework had in use on the device; None without one."""


class Turn(NamedTuple):
    """Seconds of one iteration."""

    iteration: float
    environment: float
    inference: float
    """Forward passes of the policy, with the way of observations to the device and back."""
    acting: float
    """The rest of a rollout: noise, sampling, normalisation, storing. Inside a JAX program inference is part of it."""
    learning: float
    """All epochs of gradient steps."""
    rest: float
    """Advantages, the values after the last step, transfers, metrics."""
    environment_alone: float
    """As many steps with random actions and nothing else."""


class Program:
    """The parent's end of a worker's process."""

    def __init__(self, config: Config) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(theirs, config), daemon=True)
        self._process.start()
        theirs.close()
        self.start: Start = self._answer()

    def turn(self) -> Turn:
        """Have it train; raises `Failed` if it has ended."""
        self._connection.send(None)
        answer: Turn = self._answer()
        return answer

    def _answer(self) -> Any:
        try:
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise Failed("a program's process ended; its own error stands above") from error
        if isinstance(answer, ConfigError):
            raise answer
        return answer

    def stop(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(5.0)
        self._process.kill()


def _work(connection: Connection, config: Config) -> None:
    try:
        measured = _Measured(config)
        connection.send(measured.start)
        while True:
            connection.recv()
            connection.send(measured.turn())
    except ConfigError as error:
        connection.send(error)
    except (EOFError, OSError):  # the parent is gone
        pass


class _Training:
    """A runner whose iterations are timed."""

    def __init__(self, config: Config, update_epochs: int) -> None:
        hp = dataclasses.replace(config.ppo, update_epochs=update_epochs)
        env = config.backend.make(config.task)
        self.network: NetworkSpec = config.network.build(env.observation_space, env.action_space)
        self.timed = None if isinstance(env, GraphEnv) else TimedEnv(env)
        problem = Problem(
            self.timed or env, self.network, hp, config.num_iterations, config.root.precision, config.root.device
        )
        self.runner: Runner[Any] = config.framework.runner(problem)
        self.state = self.runner.init(config.root.seed)

    def iteration(self) -> tuple[float, float, float]:
        """Seconds of an iteration, of the environments in it, and after their last step (0 within a program)."""
        if self.timed:
            self.timed.stepping_seconds = 0.0
        started = time.perf_counter()
        self.state, _, _ = self.runner.step(self.state)
        ended = time.perf_counter()
        if not self.timed:
            return ended - started, 0.0, 0.0
        return ended - started, self.timed.stepping_seconds, ended - self.timed.last_ended


class _Measured:
    """One program: its training, one with twice the epochs, and its parts alone."""

    def __init__(self, config: Config) -> None:
        self._config = config
        started = time.perf_counter()
        self._training = _Training(config, config.ppo.update_epochs)
        setup_seconds = time.perf_counter() - started
        first, *_, last = (self._training.iteration()[0] for _ in range(WARM_UP_ITERATIONS))
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        self.start = Start(setup_seconds, first - last, memory, _gpu_memory_bytes(config.framework.name))
        # What more an iteration takes with twice the epochs is what the epochs take.
        self._doubled = _Training(config, 2 * config.ppo.update_epochs)
        for _ in range(WARM_UP_ITERATIONS):
            self._doubled.iteration()
        self._alone = _alone(config)
        self._inference = None if self._training.timed is None else self._policy()

    def turn(self) -> Turn:
        """One iteration of each, and every part alone."""
        iteration, environment, after = self._training.iteration()
        doubled, _, doubled_after = self._doubled.iteration()
        alone = self._alone()
        if self._inference is None:
            learning = doubled - iteration
            return Turn(iteration, alone, 0.0, iteration - alone - learning, learning, 0.0, alone)
        learning, inference = doubled_after - after, self._inference()
        acting = iteration - after - environment - inference
        return Turn(iteration, environment, inference, acting, learning, after - learning, alone)

    def _policy(self) -> Any:
        """A function that infers as often as a rollout does, and returns how long that took."""
        config, training = self._config, self._training
        arrays = training.runner.export(training.state)
        policy = config.framework.policy(training.network, arrays, config.root.precision, config.root.device)
        shape = (config.ppo.num_envs, *training.network.input_shape)
        obs = np.zeros(shape, np.uint8 if training.network.uint8 else np.float32)
        policy(obs)

        def infer() -> float:
            started = time.perf_counter()
            for _ in range(config.ppo.num_steps):
                policy(obs)
            return time.perf_counter() - started

        return infer


def _alone(config: Config) -> Any:
    """A function that steps environments as often as a rollout does, and returns how long that took."""
    env, steps = config.backend.make(config.task), config.ppo.num_steps
    seeds = noise.env_seeds(config.root.seed, 0, config.ppo.num_envs)
    if isinstance(env, GraphEnv):
        return _alone_in_program(env, seeds, steps)
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


def _alone_in_program(env: GraphEnv, seeds: Any, steps: int) -> Any:
    import jax

    start = env.reset(seeds)
    actions = np.stack(_actions(env, steps))
    program = jax.jit(lambda state: jax.lax.scan(start.step, state, actions))
    state = jax.block_until_ready(program(start.state))[0]

    def play() -> float:
        nonlocal state
        started = time.perf_counter()
        state = jax.block_until_ready(program(state))[0]
        return time.perf_counter() - started

    return play


def _gpu_memory_bytes(framework: str) -> int | None:
    if framework.startswith("torch"):
        import torch

        return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    import jax

    stats = jax.devices()[0].memory_stats()
    return stats.get("peak_bytes_in_use") if stats else None
