"""The choices of the group `framework`. PyTorch and JAX are imported only when needed, so that the import is fast."""

from __future__ import annotations

import functools
import os
import shutil
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.progress import print_status
from ppo_bench.common.rank_info import RankInfo
from ppo_bench.common.values import NOT_HASHED, added_field
from ppo_bench.envs.base import GraphEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.shards import ProcessGroup
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.runners.base import Policy, Runner, TrainingSpec
from ppo_bench.runners.env_groups import host_runner
from ppo_bench.runners.host import HostRunner, step_by_step
from ppo_bench.tuning.cores import num_available_cores
from ppo_bench.tuning.idle_threads import let_idle_threads_sleep
from ppo_bench.tuning.machine import cxx_compiler, share_gpu_memory
from ppo_bench.tuning.switches import ON, Tuning

if TYPE_CHECKING:
    from ppo_bench.runners.jax_seeds import JaxSeedsRunner
    from ppo_bench.runners.torch import Compiler, CudaGraphs


FALLBACK_CACHE_DIR = "outputs/.compiled"
"""Folder for compiled programs if the configured one is not writable."""
IGNORED_WARNINGS = ("TensorFloat32 tensor cores for float32", r"\s*Online softmax is disabled")
"""Beginnings of warnings of PyTorch's compiler on GPUs: one recommends TF32, on which `precision` decides; another, of
torch 2.11, says how it compiled a softmax."""


@dataclass(frozen=True)
class Torch:
    """`framework=torch_eager`; see conf/framework/torch_eager.yaml for what the options mean."""

    library: ClassVar[str] = "torch"
    """Its array library, which also steps environments on the device; see `Backend`."""
    process_per_device: ClassVar[bool] = True
    """Whether several devices need one process each, or those of a machine share one."""
    name: str
    num_threads: int | None
    compiles: ClassVar[bool] = False
    """Whether its first iterations include compilation, whose time is then reported separately."""
    _: KW_ONLY
    deterministic: bool = added_field(False)

    def require(self) -> None:
        """Raise `ConfigError` if PyTorch is not installed or an option is out of range."""
        require("torch", "torch", f"framework={self.name}")
        if self.num_threads is not None and self.num_threads < 1:
            raise ConfigError(f"framework.num_threads={self.num_threads}: must be at least 1, or null")

    def configure_process(self, num_runs: int = 1, tuning: Tuning = ON, devices: int = 1) -> None:
        """Set process-wide options; to be called before its package, or an environment that uses it, is imported."""
        if tuning.sleep_idle_threads:
            let_idle_threads_sleep()
        if self.deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is initialised

    def runner(self, spec: TrainingSpec) -> Runner[Any]:
        """The runner for `spec`."""
        from ppo_bench.runners.torch import TorchLearner
        from ppo_bench.runners.torch_device import use_deterministic_algorithms

        if self.deterministic:
            use_deterministic_algorithms()
        learner = TorchLearner(spec, self.num_threads, self.compiler(), self._cuda_graphs)
        if not isinstance(spec.env, GraphEnv):
            return host_runner(spec, learner)
        if spec.env.same_step:
            from ppo_bench.runners.same_step_envs import SameStepEnvs

            stepped = SameStepEnvs(spec, learner)
            return HostRunner(spec, stepped, learner, stepped.rollout)
        from ppo_bench.runners.torch_envs import GraphedRollout, TorchEnvs

        envs = TorchEnvs(spec, learner)
        rollout = step_by_step(learner, envs, spec.ppo.num_steps)
        return HostRunner(spec, envs, learner, GraphedRollout(rollout) if learner.uses_cuda_graphs else rollout)

    def init_process_group(self, rank_info: RankInfo, timeout_seconds: float) -> ProcessGroup:
        """The processes of a training, when all of them have joined.

        `timeout_seconds` is the maximum time that one of them waits for another. Raises `ConfigError` if the port at
        which they are to meet is in use.
        """
        from ppo_bench.runners.torch_process_group import TorchProcessGroup

        return TorchProcessGroup(rank_info, timeout_seconds)

    def seeds_runner(self, spec: TrainingSpec, grid_values: Sequence[Mapping[str, float]]) -> NoReturn:
        """Raise `ConfigError`: PyTorch trains no runs at once; see `Config.require`."""
        raise ConfigError(f"framework={self.name} trains one run at a time: use num_seeds=1 and no grid")

    def policy(self, network: NetworkSpec, arrays: Arrays, precision: str, device: str, tuning: Tuning = ON) -> Policy:
        """Policy with the parameters in `arrays`, as exported by a runner; the rest as in `TrainingSpec`.

        Raises `ConfigError` if the parameters do not fit `network`.
        """
        self.configure_process(tuning=tuning)
        from ppo_bench.runners.torch_policy import policy

        return policy(network, arrays, precision, device, self.num_threads)

    def compiler(self) -> Compiler | None:
        """Transformation of functions before their first call; None leaves them as they are."""
        return None

    @property
    def _cuda_graphs(self) -> CudaGraphs:
        """What is recorded as CUDA graphs."""
        return False


@dataclass(frozen=True)
class TorchCompile(Torch):
    """`framework=torch_compile`; see conf/framework/torch_compile.yaml for what the options mean."""

    mode: str
    cudagraphs: Any
    compile_cache: str | None = field(metadata=NOT_HASHED)
    compiles: ClassVar[bool] = True

    def require(self) -> None:
        """Raise `ConfigError` if PyTorch is not installed or an option is out of range."""
        super().require()
        if self.mode not in ("default", "max-autotune-no-cudagraphs"):
            raise ConfigError(f"framework.mode={self.mode}: choose default or max-autotune-no-cudagraphs")
        if not isinstance(self.cudagraphs, bool) and self.cudagraphs not in ("auto", "update"):
            raise ConfigError(f"framework.cudagraphs={self.cudagraphs}: choose auto, update, true or false")

    def compiler(self) -> Compiler:
        """See `Torch.compiler`. Raises `ConfigError` if there is no C++ compiler."""
        if not shutil.which(cxx := cxx_compiler()):
            raise ConfigError(
                f"framework=torch_compile needs a C++ compiler, and there is no {cxx} on PATH: apt install g++, or "
                "name one by the environment variable CXX"
            )
        if folder := _cache_folder(self.compile_cache, "torch"):
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder  # read when something is first compiled
        import torch
        import torch._functorch.config
        import torch.compiler.config

        # All functions that are compiled here share a limit of 8, which the ninth experiment of a process would exceed.
        torch.compiler.config.recompile_limit = torch.compiler.config.accumulated_recompile_limit = 1 << 16
        # Without this, graphs with a custom autograd function (networks/torch/recurrence.py) are not cached on disk.
        torch._functorch.config.autograd_cache_allow_custom_autograd_functions = True
        for said in IGNORED_WARNINGS:
            warnings.filterwarnings("ignore", message=said, category=UserWarning)
        # Shapes never change, so none needs to be symbolic. With fullgraph a graph break is an error, not a slow path.
        return functools.partial(torch.compile, fullgraph=True, dynamic=False, mode=self.mode)

    @property
    def _cuda_graphs(self) -> CudaGraphs:
        value: CudaGraphs = self.cudagraphs
        return value


@dataclass(frozen=True)
class Jax:
    """`framework=jax_xla`; see conf/framework/jax_xla.yaml for what the options mean."""

    library: ClassVar[str] = "jax"
    process_per_device: ClassVar[bool] = False
    name: str
    compile_cache: str | None = field(metadata=NOT_HASHED)
    compiles: ClassVar[bool] = True
    _: KW_ONLY
    deterministic: bool = added_field(False)

    def require(self) -> None:
        """Raise `ConfigError` if JAX, flax or optax is not installed."""
        for package in ("jax", "flax", "optax"):
            require(package, "jax", f"framework={self.name}")

    def configure_process(self, num_runs: int = 1, tuning: Tuning = ON, devices: int = 1) -> None:
        """See `Torch.configure_process`."""
        share_gpu_memory()
        if self.deterministic and "xla_gpu_deterministic_ops" not in os.environ.get("XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true".strip()
        if num_runs > 1:
            _set_num_cpu_devices(num_available_cores())
        elif devices > 1:
            _set_num_cpu_devices(devices)

    def runner(self, spec: TrainingSpec) -> Runner[Any]:
        """The runner for `spec`: if its environment is a `GraphEnv`, whole iterations are one program."""
        self._enable_compilation_cache()
        from ppo_bench.runners.jax import JaxLearner
        from ppo_bench.runners.program_runner import ProgramRunner

        if isinstance(spec.env, GraphEnv):
            return ProgramRunner(spec)
        return host_runner(spec, JaxLearner(spec))

    def init_process_group(self, rank_info: RankInfo, timeout_seconds: float) -> ProcessGroup:
        """See `Torch.init_process_group`."""
        from ppo_bench.runners.jax_process_group import JaxProcessGroup

        return JaxProcessGroup(rank_info, timeout_seconds)

    def seeds_runner(self, spec: TrainingSpec, grid_values: Sequence[Mapping[str, float]]) -> JaxSeedsRunner:
        """The runner of several runs of `spec`, whose environments must be `vmappable`.

        `grid_values` has the hyperparameters (`VMAPPABLE_HYPERPARAMETERS`) in which its runs differ, of each run.
        """
        self._enable_compilation_cache()
        from ppo_bench.runners.jax_seeds import JaxSeedsRunner

        return JaxSeedsRunner(spec, grid_values)

    def _enable_compilation_cache(self) -> None:
        """Enable JAX's on-disk cache of compiled programs if it is configured."""
        import jax

        if folder := _cache_folder(self.compile_cache, "jax"):
            jax.config.update("jax_compilation_cache_dir", folder)
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)

    def policy(self, network: NetworkSpec, arrays: Arrays, precision: str, device: str, tuning: Tuning = ON) -> Policy:
        """See `Torch.policy`."""
        self.configure_process(tuning=tuning)
        from ppo_bench.runners.jax_policy import policy

        return policy(network, arrays, precision, device, tuning)


Framework = Torch | Jax
"""A choice of the group `framework`: how PPO is executed. Its fields are the keys of its YAML file."""


def _cache_folder(root: str | None, framework: str) -> str | None:
    """Cache folder under `root` for the compiled programs of `framework`; None if they are not cached.

    If it is not writable, for example without a home directory, `FALLBACK_CACHE_DIR` replaces `root`.
    """
    if root is None:
        return None
    for folder in (Path(path).expanduser().absolute() / framework for path in (root, FALLBACK_CACHE_DIR)):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return str(folder)
        print_status(f"warning: {folder} cannot be written; see framework.compile_cache")
    return None


def _set_num_cpu_devices(count: int) -> None:
    """Split the CPU into `count` JAX devices, unless the user has configured their number."""
    import jax

    said = jax.config.jax_num_cpu_devices != -1  # type: ignore[attr-defined]  # or JAX_NUM_CPU_DEVICES
    if not said and "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        try:
            jax.config.update("jax_num_cpu_devices", count)
        except RuntimeError:  # JAX is already initialised: its number of devices stays
            if jax.default_backend() == "cpu" and jax.device_count() < count:
                print_status(
                    f"warning: JAX has begun here with fewer than {count} CPU devices: another process is faster"
                )
