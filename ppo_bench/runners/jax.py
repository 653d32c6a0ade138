"""PPO executed by JAX, with environments on the host: one compiled step of the policy, one compiled update."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import jax
import numpy as np

from ppo_bench.runners.base import Arrays, Episode, Metrics, Problem
from ppo_bench.runners.jax_learning import Learner, Learning, act, action_noise, allocate, update
from ppo_bench.runners.rollout import HostEnvs, RolloutState


@dataclass
class JaxState:
    """Everything that changes from one iteration to the next."""

    seed: int
    iteration: int
    """Iterations done."""
    learner: Learner
    envs: RolloutState


class JaxRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, problem: Problem) -> None:
        self._learning = learning = Learning(problem)
        self._num_steps = problem.ppo.num_steps
        self._envs = HostEnvs(problem.env, problem.network, problem.ppo)
        self.execution = learning.execution
        network, layers, hp, dtype = learning.network, learning.layers, learning.ppo, learning.dtype
        self._storage = jax.device_put(allocate(network, hp, dtype), learning.device)
        self._noise = jax.jit(functools.partial(action_noise, network, hp, dtype))
        self._act = jax.jit(functools.partial(act, network, layers), donate_argnums=1)
        self._update = jax.jit(functools.partial(update, network, layers, hp, learning.optimizer), donate_argnums=0)

    # --- One iteration ------------------------------------------------------------------------------------------------

    def step(self, state: JaxState) -> tuple[JaxState, Metrics, list[Episode]]:
        """See `Runner.step`."""
        iteration = state.iteration + 1
        learning_rate = self._learning.learning_rate(iteration)
        params, host_dtype = state.learner.params, np.int64 if self._learning.network.discrete else None
        with jax.default_device(self._learning.device):
            noise_of_step = self._noise(np.int32(state.seed), np.int32(iteration))

            def act_on_host(t: int, obs: np.ndarray) -> np.ndarray:
                self._storage, actions = self._act(params, self._storage, noise_of_step, np.int32(t), obs)
                return np.array(actions, host_dtype)  # its own, as PyTorch's: some environments write to it

            state.envs, rollout = self._envs.collect(state.envs, act_on_host)
            act_on_host(self._num_steps, state.envs.obs)  # for the value of the last observations
            flags = (rollout.rewards, rollout.terminated, rollout.truncated, rollout.real)
            state.learner, measured = self._update(
                state.learner, self._storage, flags, np.int32(state.seed), np.int32(iteration), learning_rate
            )
        state.iteration = iteration
        metrics = Metrics(
            learning_rate=learning_rate,
            masked_fraction=1.0 - float(np.mean(rollout.real)),
            **{name: float(value) for name, value in jax.device_get(measured).items()},
        )
        return state, metrics, rollout.episodes

    # --- Beginning, leaving and taking up again -----------------------------------------------------------------------

    def init(self, seed: int) -> JaxState:
        """See `Runner.init`."""
        return JaxState(seed, 0, self._learning.init(seed), self._envs.start(seed, 0))

    def export(self, state: JaxState) -> Arrays:
        """See `Runner.export`."""
        return Learning.export(state.learner, state.seed, state.iteration) | HostEnvs.export(state.envs)

    def restore(self, arrays: Arrays, carried: bool = False) -> JaxState:
        """See `Runner.restore`."""
        seed, iteration, learner = self._learning.restore(arrays)
        return JaxState(seed, iteration, learner, self._envs.restore(arrays, seed, iteration, carried))

    def restart(self, state: JaxState, iteration: int) -> JaxState:
        """See `Runner.restart`."""
        state.envs = self._envs.restart(state.envs, state.seed, iteration)
        return state

    def close(self) -> None:
        """See `Runner.close`."""
        self._envs.close()
