"""A checked configuration and everything derived from it: task, network, training spec, identity and folders."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.files import resolve_folders
from ppo_bench.common.rank_info import read_rank_info
from ppo_bench.common.user_code import configured_objects, configured_user_code
from ppo_bench.common.values import digest, env_name_and_id, file_name
from ppo_bench.configuration.compose import key_of
from ppo_bench.configuration.identity import identity
from ppo_bench.configuration.schema import RootSchema
from ppo_bench.envs.base import Backend, GraphEnv, Task, VectorEnv
from ppo_bench.networks.network import Network, NetworkSpec
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.frameworks import Framework
from ppo_bench.tuning.cores import num_available_cores
from ppo_bench.tuning.machine import has_nvidia_gpu
from ppo_bench.tuning.switches import Tuning


@dataclass
class Config:
    """A checked configuration of a run, or of several that are trained together."""

    root: RootSchema
    ppo: Hyperparameters
    framework: Framework
    backend: Backend
    network: Network
    algorithm: Ppo
    tuning: Tuning
    trackers: dict[str, Any]
    """By name; ppo_bench/runs/trackers/tracking.py has their interface."""
    resolved: dict[str, Any]
    """The same values as plain types, as run.json has them."""
    hashed: dict[str, Any]
    """The part of `resolved` that determines what is trained and the hash in the folder's name; see
    ppo_bench/configuration/identity.py."""
    overrides: tuple[str, ...] = ()
    """The words that composed it; none if it is that of a recorded run."""
    grid_values: dict[str, float] = field(default_factory=dict)
    """Hyperparameters that one of several runs has from `grid`."""
    run_dir: Path | None = None
    """The run's folder if `hydra.run.dir` names another one than that which follows from the configuration."""

    def require(self, elsewhere: bool = False) -> None:
        """Raise `ConfigError` if framework and backend do not work together, or a package that they need is missing.

        `elsewhere` says that another machine will train, whose devices are unknown.
        """
        if not self.steps_envs:
            in_jax = self.framework.library != "jax"
            what = "part of a JAX program" if in_jax else "made of PyTorch tensors"
            raise ConfigError(
                f"framework={self.framework.name} cannot step {self.task.id} of backend={self.backend.name}, which is "
                f"{what}: use framework={'jax_xla' if in_jax else 'torch_eager'}, or another backend"
            )
        if self.trains_several and not (self.framework.library == "jax" and self.backend.vmappable):
            seeds = ",".join(str(self.root.seed + k) for k in range(self.root.num_seeds))
            values = (f"{key}={','.join(map(str, values))}" for key, values in self.grid.items())
            raise ConfigError(
                f"{'grid' if self.grid else f'num_seeds={self.root.num_seeds}'} is for framework=jax_xla "
                "backend=device, where one program can train several runs; elsewhere use a sweep: -m "
                + " ".join((*values, f"seed={seeds}"))
            )
        if self.devices_here > 1 and self.backend.in_graph and not self.backend.vmappable:
            raise ConfigError(
                f"devices={self.devices_here}: environments of backend={self.backend.name} cannot be divided in one "
                "process; use another backend, such as envpool"
            )
        if not elsewhere:
            self._require_devices()
        self.framework.require()
        self.require_backend()
        if every_episodes := self.root.video.every_episodes:
            require("av", "video", f"video.every_episodes={every_episodes}")
        self._require_source()

    def require_backend(self) -> None:
        """Raise `ConfigError` if the package of the backend is missing."""
        if package := getattr(self.backend, "package", None):
            require(package, package, f"backend={self.backend.name}")

    @property
    def steps_envs(self) -> bool:
        """Whether the framework can step the environments; see `Backend`."""
        backend: Any = self.backend
        return not backend.in_graph or self.framework.library in backend.libraries(self.task.id)

    def _require_devices(self) -> None:
        """Raise `ConfigError` if this machine's devices are its CPU's and it has fewer cores than devices."""
        rank_info, cores = read_rank_info(), num_available_cores()
        devices = self.root.devices
        if rank_info:
            devices //= rank_info.nodes
            cores *= rank_info.local_world_size if rank_info.own_cores else 1
        if devices > cores and (self.root.device == "cpu" or not has_nvidia_gpu()):
            raise ConfigError(
                f"devices={devices}: each takes a core of a CPU, and there are {cores}; use at most {cores}"
            )

    @property
    def processes(self) -> int:
        """Number of processes that share a training: one for each device, or one for each machine."""
        if self.framework.process_per_device:
            return self.root.devices
        rank_info = read_rank_info()
        return rank_info.world_size if rank_info else 1

    @property
    def rank(self) -> int:
        """Index of this process among those that share the training; 0 has the run's folder."""
        rank_info = read_rank_info()
        return rank_info.rank if rank_info and self.processes > 1 else 0

    @property
    def num_groups(self) -> int:
        """Number of groups of environments that step in turn."""
        return getattr(self.backend, "num_groups", 1)

    @property
    def devices_here(self) -> int:
        """Number of devices of each process."""
        return self.root.devices // self.processes

    def _require_source(self) -> None:
        """Raise `ConfigError` if the run cannot continue from the iteration of the checkpoint that it starts from."""
        if self.source is None:
            return
        iterations, steps = self.source.loop["iteration"], self.source.loop["global_step"]
        load = f"checkpoint.load={self.root.checkpoint.load}"
        if steps != iterations * self.ppo.batch_size:
            raise ConfigError(
                f"{load} has iterations of {steps // iterations} steps, and ppo.num_envs x ppo.num_steps = "
                f"{self.ppo.batch_size}: choose them so that it is the same, or checkpoint.fine_tune=true"
            )
        if iterations >= self.num_iterations:
            raise ConfigError(
                f"{load} has done {steps} steps, and total_timesteps={self.root.total_timesteps} leaves no iteration "
                f"of {self.ppo.batch_size} after them: ask for more"
            )

    @property
    def num_iterations(self) -> int:
        """Number of whole iterations within `total_timesteps`."""
        return self.root.total_timesteps // self.ppo.batch_size

    @cached_property
    def task(self) -> Task:
        """The task for the backend to build. Raises `ConfigError` if the backend has no such environment."""
        env = self.root.env
        if env.id is None and self.backend.name not in env.ids:
            offered = ", ".join(f"backend={name}" for name in sorted(env.ids))
            raise ConfigError(f"backend={self.backend.name} has no env={env.name}; available with {offered}")
        name, env_id = env_name_and_id(self.resolved)
        return Task(
            name,
            env_id,
            self.ppo.num_envs,
            env.atari,
            env.kwargs or {},
            tuple(env.wrappers),
            self.tuning,
            tuple(env.observe),
            env.players,
            tuple(env.info),
        )

    @cached_property
    def source(self) -> checkpoint.Checkpoint | None:
        """The checkpoint that a new run starts from (`checkpoint.load`). Raises `ConfigError` if missing or damaged."""
        loaded = self.loaded
        return loaded.as_untrained() if loaded and self.root.checkpoint.fine_tune else loaded

    @cached_property
    def loaded(self) -> checkpoint.Checkpoint | None:
        """The checkpoint that `checkpoint.load` names, as it is; None without one. Raises `ConfigError`."""
        load = self.root.checkpoint.load
        return None if load is None else checkpoint.load_named(Path(load))

    def network_for(self, env: VectorEnv | GraphEnv) -> NetworkSpec:
        """The network for the spaces of `env`, with one value output for each of the algorithm's reward streams."""
        streams = {} if len(self.algorithm.streams) == 1 else {"streams": len(self.algorithm.streams)}
        network = self.network.build(env.observation_space, env.action_space, **streams)
        network.require("flax" if self.framework.library == "jax" else "torch")
        return network

    def training_spec(self, env: VectorEnv | GraphEnv) -> TrainingSpec:
        """The specification that a runner is built from, with the environments `env`. Raises `ConfigError`."""
        network, root = self.network_for(env), self.root
        return TrainingSpec(
            env,
            network,
            self.algorithm,
            self.ppo,
            self.num_iterations,
            root.precision,
            root.device,
            root.env.rescale_actions,
            self.tuning,
            root.devices,
        )

    @property
    def trains_several(self) -> bool:
        """Whether one program trains several runs."""
        return self.root.num_seeds > 1 or bool(self.root.grid)

    @property
    def grid(self) -> dict[str, list[float]]:
        """Values of hyperparameters of which one program trains several, by key."""
        return {key: [float(value) for value in values] for key, values in (self.root.grid or {}).items()}

    def of_each_run(self) -> list[Config]:
        """Configurations of the runs that one program trains: each combination of the values of `grid`, each seed."""
        if not self.trains_several:
            return [self]
        seeds = range(self.root.seed, self.root.seed + self.root.num_seeds)
        combinations = itertools.product(*self.grid.values())
        return [self._run(dict(zip(self.grid, values, strict=True)), s) for values in combinations for s in seeds]

    @property
    def named(self) -> str:
        """Name of a run among those trained with it: the hyperparameters in which they differ, and its seed."""
        return " ".join(
            (*(f"ppo.{name}={value}" for name, value in self.grid_values.items()), f"seed {self.root.seed}")
        )

    def _run(self, values: dict[str, float], seed: int) -> Config:
        """Configuration of one of several runs, as if it were trained alone; `values` are by the keys of `grid`."""
        of_ppo = {key.removeprefix("ppo."): value for key, value in values.items()}
        alone = [("seed", seed), ("num_seeds", 1), *([("grid", "null")] if self.grid else [])]  # a file may set them
        words = {key: f"{key}={value}" for key, value in (*values.items(), *alone)}
        shared = [word for word in self.overrides if key_of(word) not in words]
        run = replace(
            self,
            root=replace(self.root, seed=seed, num_seeds=1, grid=None),
            ppo=replace(self.ppo, **of_ppo),  # type: ignore[arg-type]
            resolved=self.resolved | {"seed": seed, "num_seeds": 1, "grid": None, "ppo": self.resolved["ppo"] | of_ppo},
            hashed=self.hashed | {"ppo": self.hashed["ppo"] | of_ppo},
            overrides=(*shared, *words.values()),
            grid_values=of_ppo,
        )
        vars(run).update(loaded=self.loaded, source=self.source)
        return run

    @property
    def folders(self) -> list[Path]:
        """Folders of the command's runs, as `rerun` chooses them now."""
        return resolve_folders([config.run_folder for config in self.of_each_run()], self.root.rerun)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """The identity of the experiment, without the seed; see ppo_bench/configuration/identity.py."""
        loaded = checkpoint.digest(self.source.arrays) if self.source else None
        return identity(self.hashed, self.task.id, loaded, configured_user_code(self.configured_objects))

    @property
    def configured_objects(self) -> list[str]:
        """Dotted names of the classes, functions and modules that the training uses by configuration."""
        return configured_objects(self.hashed, self.task.id)

    @property
    def experiment(self) -> str:
        """`<env>-<backend>-<framework>-<hash>`, with the hash of the identity."""
        names = (self.task.name, self.backend.name, self.framework.name, digest(self.identity))
        return "-".join(file_name(name) for name in names)

    @property
    def run_folder(self) -> Path:
        """`<outputs>/<name>/<experiment>/seed<k>`."""
        return self.run_dir or Path(self.root.outputs) / self.root.name / self.experiment / f"seed{self.root.seed}"
