"""EnvPool stepped from inside a JAX program, through its XLA interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.values import NOT_HASHED
from ppo_bench.envs.base import EnvStep, GraphEnv, ResetResult, Task
from ppo_bench.envs.envpool import EnvPoolBackend, EnvPoolEnv, PoolLayout, make_env_step
from ppo_bench.tuning.machine import share_gpu_memory


@dataclass(frozen=True)
class EnvPoolXlaBackend:
    """`backend=envpool_xla`; conf/backend/envpool_xla.yaml explains its options."""

    in_graph: ClassVar[bool] = True
    vmappable: ClassVar[bool] = False
    name: str
    num_threads: int = field(metadata=NOT_HASHED)

    def libraries(self, env_id: str) -> tuple[str, ...]:
        """See `Backend`."""
        return ("jax",)

    def require(self) -> None:
        """Raise `ConfigError` if EnvPool or JAX is not installed or an option is out of range."""
        require("jax", "jax", "backend=envpool_xla")
        EnvPoolBackend(self.name, self.num_threads).require()

    def make(self, task: Task) -> EnvPoolGraphEnv:
        """The environments of `task`. Raises `ConfigError` if it is for several players."""
        if task.players > 1:
            raise ConfigError(f"{task.id}: EnvPool's XLA interface has no games of turns; use backend=envpool")
        task.require_no_wrappers("envpool_xla")
        share_gpu_memory()
        return EnvPoolGraphEnv(task, self.num_threads)


class EnvPoolGraphEnv(GraphEnv):
    """A `GraphEnv` over one EnvPool pool.

    Its state consists of EnvPool's handle, which only orders the steps, and flags `[N]` of the environments that reset
    in the next step.
    """

    is_program_cacheable: ClassVar[bool] = False  # compiled programs hold the pool's memory address

    def __init__(self, task: Task, num_threads: int) -> None:
        self._envs = EnvPoolEnv(task, num_threads)
        self.num_envs = task.num_envs
        self.observation_space = self._envs.observation_space
        self.action_space = self._envs.action_space
        self.masks_actions = self._envs.masks_actions
        self.time_limit = self._envs.time_limit
        self._steps: dict[bytes, _PoolStep] = {}
        """The step function of every handle (memory address) at which there was a pool."""

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> ResetResult:
        """Build a new pool, and return the step function that belongs to its memory address.

        Every compiled program that steps a pool contains the pool's address as a constant. A pool at another address
        needs another program, since the earlier program would step freed memory. The new pool mostly gets the memory of
        the last one. Then the step function is the same object, and its programs need not be compiled again.
        """
        if xp.__name__ != "jax.numpy":
            raise ConfigError("backend=envpool_xla is stepped by JAX: use framework=jax_xla, or backend=envpool")
        import jax
        import jax.numpy as jnp

        self.close()
        policy_input = self._envs.reset(seeds)
        with jax.enable_x64(True):  # EnvPool declares float64 arrays (MuJoCo); as float32 their bytes would be misread
            handle, _, _, pool_step = self._envs.pool.xla()
            step = self._steps.setdefault(handle.tobytes(), _PoolStep(self._envs.layout))
            step.pool_step, step.action_dtype = pool_step, self._envs.pool.spec.action_array_spec["action"].dtype
            return ResetResult(step, (jnp.array(handle), jnp.zeros(self.num_envs, bool)), policy_input.map(jnp.array))

    def close(self) -> None:
        """Stop the pool's threads and free its memory."""
        for step in self._steps.values():
            step.pool_step = None
        self._envs.close()


class _PoolStep:
    """The step function of the pool that currently has a given address."""

    pool_step: Any
    action_dtype: Any

    def __init__(self, layout: PoolLayout) -> None:
        self._layout = layout

    def __call__(self, state: Any, actions: Any) -> tuple[Any, EnvStep]:
        import jax

        handle, resets = state
        with jax.enable_x64(True):
            handle, results = self.pool_step(handle, actions.astype(self.action_dtype))
            step = make_env_step(self._layout, resets, *results)
            return (handle, step.terminated | step.truncated), step
