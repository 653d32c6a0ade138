"""The choices of the group `framework`. Light on purpose: PyTorch and JAX are imported where a runner is built."""

from __future__ import annotations

import functools
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
    compiles: ClassVar[bool] = False

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
class TorchCompile(Torch):
    """`framework=torch_compile`; see conf/framework/torch_compile.yaml for what the options mean."""

    mode: str
    compiles: ClassVar[bool] = True

    def require(self) -> None:
        """Raise `ConfigError` if PyTorch is not installed or an option is out of range."""
        super().require()
        if self.mode not in ("default", "max-autotune-no-cudagraphs"):
            raise ConfigError(f"framework.mode={self.mode}: choose default or max-autotune-no-cudagraphs")

    def runner(self, problem: Problem) -> TorchRunner:
        """The runner for `problem`."""
        import torch

        from ppo_bench.runners.torch import TorchRunner

        # Shapes never change, so none is made symbolic; a graph break would be an error, not a slow path.
        compiler = functools.partial(torch.compile, fullgraph=True, dynamic=False, mode=self.mode)
        return TorchRunner(problem, self.num_threads, compiler)


@dataclass(frozen=True)
class Jax:
    """`framework=jax_xla`; see conf/framework/jax_xla.yaml."""

    takes_graph_envs: ClassVar[bool] = True
    name: str
    compiles: ClassVar[bool] = True

    def require(self) -> None:
        """Raise `ConfigError` if JAX, flax or optax is not installed."""
        for package in ("jax", "flax", "optax"):
            require(package, "jax", f"framework={self.name}")

    def runner(self, problem: Problem) -> JaxRunner | JaxGraphRunner:
        """The runner for `problem`: one program an iteration if its environments can be part of that."""
        from ppo_bench.runners.jax import JaxRunner
        from ppo_bench.runners.jax_graph import JaxGraphRunner

        return JaxGraphRunner(problem, problem.env) if isinstance(problem.env, GraphEnv) else JaxRunner(problem)
