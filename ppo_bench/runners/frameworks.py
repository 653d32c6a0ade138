"""The choices of the group `framework`. Light on purpose: PyTorch and JAX are imported where a runner is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ppo_bench.envs.base import GraphEnv
from ppo_bench.errors import ConfigError, require
from ppo_bench.runners.base import Problem

if TYPE_CHECKING:
    from ppo_bench.runners.jax import JaxRunner
    from ppo_bench.runners.jax_graph import JaxGraphRunner
    from ppo_bench.runners.torch import TorchRunner


@dataclass(frozen=True)
class Torch:
    """`framework=torch_eager`; see conf/framework/torch_eager.yaml for what the options mean."""

    takes_graph_envs: ClassVar[bool] = False
    name: str
    num_threads: int | None

    def require(self) -> None:
        """Raise `ConfigError` if PyTorch is not installed or an option is out of range."""
        require("torch", "torch", f"framework={self.name}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ConfigError(f"framework.num_threads={self.num_threads}: must be at least 1, or null")

    def runner(self, problem: Problem) -> TorchRunner:
        """The runner for `problem`."""
        from ppo_bench.runners.torch import TorchRunner

        return TorchRunner(problem, self.num_threads)


@dataclass(frozen=True)
class Jax:
    """`framework=jax_xla`; see conf/framework/jax_xla.yaml."""

    takes_graph_envs: ClassVar[bool] = True
    name: str

    def require(self) -> None:
        """Raise `ConfigError` if JAX, flax or optax is not installed."""
        for package in ("jax", "flax", "optax"):
            require(package, "jax", f"framework={self.name}")

    def runner(self, problem: Problem) -> JaxRunner | JaxGraphRunner:
        """The runner for `problem`: one program an iteration if its environments can be part of that."""
        from ppo_bench.runners.jax import JaxRunner
        from ppo_bench.runners.jax_graph import JaxGraphRunner

        return JaxGraphRunner(problem, problem.env) if isinstance(problem.env, GraphEnv) else JaxRunner(problem)
