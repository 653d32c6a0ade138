"""Processes of the frameworks, one each: flags, threads and caches of one must not affect another."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack
from typing import Any

import numpy as np

from ppo_bench.commands.equivalence.differences import IterationOutcome
from ppo_bench.common.workers import RankWorkers
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv, PolicyInput, VectorEnv
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.envs.replay import RecordingEnv, ReplayEnv, concatenate_steps
from ppo_bench.mathematics.arrays import load_arrays
from ppo_bench.mathematics.shards import SINGLE_SHARD, Shard
from ppo_bench.runners.array_specs import env_array_specs, normalization_array_specs
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.host_envs import HostEnvs
from ppo_bench.runs.distributed import build_runner


class FrameworkProcess(RankWorkers):
    """The process of one framework, which leads or repeats a leader's iterations from its state and on its steps.

    It is sent `(state, environment steps)` to follow, or None to lead or train alone.
    """

    def __init__(self, config: Config, follows: bool = True) -> None:
        super().__init__(config.framework.name, config.processes, _serve, config, follows)

    def outcome(self) -> IterationOutcome:
        """Outcome of the iteration that was asked for; waits for it."""
        outcomes: list[IterationOutcome] = self.receive()
        actions = np.concatenate([outcome.actions for outcome in outcomes], 1)
        steps = [outcome.steps for outcome in outcomes if outcome.steps is not None]
        return outcomes[0]._replace(actions=actions, steps=concatenate_steps(steps) if steps else None)


def iterations(
    configs: dict[str, Config],
) -> Generator[tuple[IterationOutcome, dict[str, IterationOutcome]], None, None]:
    """For each iteration, the outcome of the first framework, the leader, and those of its followers by name."""
    (_, config), *others = configs.items()
    with ExitStack() as processes:
        leading = processes.enter_context(FrameworkProcess(config, follows=False))
        following = {name: processes.enter_context(FrameworkProcess(other)) for name, other in others}
        leading.send(None)
        for iteration in range(1, config.num_iterations + 1):
            led = leading.outcome()
            if iteration < config.num_iterations:
                leading.send(None)  # the leader continues while the others follow
            for each in following.values():
                each.send((led.before, led.steps))
            yield led, {name: each.outcome() for name, each in following.items()}


def _recorded(env: VectorEnv | GraphEnv, shard: Shard) -> RecordingEnv:
    """A process's environments, recorded; environments of a device are stepped on the host."""
    return RecordingEnv(to_vector_env(env))


def _replayed(env: VectorEnv | GraphEnv, shard: Shard) -> ReplayEnv:
    """A replay of recorded steps in place of a process's environments."""
    made = to_vector_env(env)
    made.close()
    return ReplayEnv(made, shard)


def _serve(config: Config, follows: bool) -> Generator[IterationOutcome | None, Any, None]:
    """Run one iteration for each message, alone or after the leader, and yield its outcome."""
    root = config.root
    runner, env = build_runner(config, config.framework.runner, _replayed if follows else _recorded)
    try:
        state = None if follows else runner.init(root.seed)  # a follower receives its leader's state
        if not follows and config.algorithm.num_warmup_rollouts:
            env.take()  # drops the warm-up, which is no iteration
        iteration, outcome = 0, None
        while True:
            message = yield outcome
            if follows:
                before, steps = message
                env.load(steps)
                state, metrics, _ = runner.iterate(runner.restore(before, restore_envs=True))
                outcome = IterationOutcome(env.actions(), {}, runner.export(state), metrics, None)
            else:
                before = runner.export(state)
                state, metrics, _ = runner.iterate(state)
                steps, actions = env.take()
                outcome = IterationOutcome(actions, before, runner.export(state), metrics, steps)
                iteration += 1
                if iteration % root.checkpoint.every_iterations == 0:  # as in training
                    state = runner.restart_envs(state)
    finally:
        runner.close()


def played(config: Config, led: IterationOutcome) -> tuple[TrainingSpec, list[PolicyInput]]:
    """The leader's `TrainingSpec`, and the input of its network in each step of the iteration."""
    replay = _replayed(make_env(config.backend, config.task), SINGLE_SHARD)
    assert led.steps is not None
    replay.load(led.steps)
    spec = config.training_spec(replay)
    envs = HostEnvs(spec)
    state = load_arrays(
        (*env_array_specs(spec), *normalization_array_specs(replay.observation_space.shape)), led.before
    )
    (state, rollout), policy_inputs = envs.begin_rollout(state), []
    for t, actions in enumerate(led.actions):
        policy_inputs.append(
            PolicyInput(*(None if array is None else np.array(array) for array in envs.policy_input(state)))
        )
        state, rollout = envs.step(state, rollout, t, actions)
    return spec, policy_inputs
