"""From command-line overrides to a checked configuration, or to one line that says what to change.

YAML files under conf/ hold every value and its meaning; the classes here hold the types. The choices of the groups
`framework`, `backend` and `network` name their class by `_target_`, and that class's fields are their typed keys.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

from omegaconf import DictConfig, OmegaConf

from ppo_bench.algorithms.base import Algorithm, Hyperparameters
from ppo_bench.common.errors import ConfigError, require
from ppo_bench.configuration.actions import acts_by_floats
from ppo_bench.configuration.compose import compose_root, one_line, typed
from ppo_bench.configuration.identity import digest, env_of, file_name, former_identity, identity, plain
from ppo_bench.configuration.ranges import check_values
from ppo_bench.configuration.schema import RootSchema
from ppo_bench.envs.base import GraphEnv, Task, VectorEnv
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.runners.base import Framework, Problem, has_nvidia_gpu
from ppo_bench.runs import checkpoint
from ppo_bench.runs.results import choose_folder
from ppo_bench.runs.source import check_source
from ppo_bench.runs.trackers.mirror import Tracker

_BUILDS = {"framework": "runner", "backend": "make", "network": "build", "algorithm": "loss", "tracker": "open"}
"""The method by which a group's choice is put to use."""


class Backend(Protocol):
    """A choice of the group `backend`: where environments come from. Made from its YAML file."""

    in_graph: ClassVar[bool]
    """Its environments are `GraphEnv`s, part of a JAX program; false where they live on the host."""
    vmappable: ClassVar[bool]
    """Several sets of its environments can be stepped by `jax.vmap`, which several seeds at once take."""
    name: str

    def require(self) -> None:
        """Raise `ConfigError` if its packages are not installed or an option is out of range."""

    def make(self, task: Task) -> VectorEnv | GraphEnv:
        """The environments of `task`."""


class Network(Protocol):
    """A choice of the group `network`. Made from its YAML file."""

    def build(self, observation_space: Any, action_space: Any) -> NetworkSpec:
        """The network for these spaces."""


@dataclass
class Config:
    """A checked configuration."""

    root: RootSchema
    ppo: Hyperparameters
    framework: Framework
    backend: Backend
    network: Network
    algorithm: Algorithm
    trackers: dict[str, Tracker]
    resolved: dict[str, Any]
    """The same as plain values, as it is written to run.json."""
    hashed: dict[str, Any]
    """The same without the keys that are younger than the first runs and at their defaults."""
    note: str = ""
    """A choice that was made for the user, and why."""

    def require(self) -> None:
        """Raise `ConfigError` if framework and backend do not go together, or a package that they need is missing."""
        if self.backend.in_graph and not self.framework.takes_graph_envs:
            on_the_host = [name for name in ("gymnasium", "envpool") if name in self.root.env.ids]
            pairs = [("jax_xla", self.backend.name), *((self.framework.name, name) for name in on_the_host)]
            raise ConfigError(
                f"framework={self.framework.name} cannot step backend={self.backend.name}, whose environments are part "
                "of a JAX program; pairs that work: "
                + ", ".join(f"framework={one} backend={other}" for one, other in pairs)
            )
        if self.root.num_seeds > 1 and not (self.framework.takes_graph_envs and self.backend.vmappable):
            seeds = ",".join(str(config.root.seed) for config in self.of_each_seed())
            raise ConfigError(
                f"num_seeds={self.root.num_seeds} is for framework=jax_xla backend=jax, where one program can train "
                f"several seeds; elsewhere use a sweep: -m seed={seeds}"
            )
        self.framework.require()
        self.backend.require()
        for tracker in self.trackers.values():
            tracker.require()
        if every_episodes := self.root.video.every_episodes:
            require("av", "video", f"video.every_episodes={every_episodes}")
        at_once, every = self.framework.iterations_per_call, self.root.checkpoint.every_iterations
        if at_once > 1 and not self.backend.in_graph:
            raise ConfigError(
                f"framework.iterations_per_call={at_once} needs environments that are part of the program: "
                "use backend=jax, backend=envpool_xla, or 1"
            )
        if every % at_once:
            raise ConfigError(
                f"framework.iterations_per_call={at_once} does not divide checkpoint.every_iterations={every}: "
                "choose a divisor"
            )
        check_source(self)

    @property
    def num_iterations(self) -> int:
        """Whole iterations within `total_timesteps`."""
        return self.root.total_timesteps // self.ppo.batch_size

    @cached_property
    def task(self) -> Task:
        """What the backend is to build. Raises `ConfigError` if it has no such environment."""
        env = self.root.env
        if env.id is None and self.backend.name not in env.ids:
            offered = ", ".join(f"backend={name}" for name in sorted(env.ids))
            raise ConfigError(f"env={env.name} is not offered by backend={self.backend.name}; it is by {offered}")
        name, env_id = env_of(self.resolved)
        return Task(name, env_id, self.ppo.num_envs, env.atari, env.kwargs or {}, tuple(env.wrappers))

    @cached_property
    def source(self) -> checkpoint.Checkpoint | None:
        """What `checkpoint.load` names: where a new run starts. Raises `ConfigError` if it is not there and whole."""
        load = self.root.checkpoint.load
        return None if load is None else checkpoint.load_named(Path(load))

    def network_for(self, env: VectorEnv | GraphEnv) -> NetworkSpec:
        """The network for the spaces of `env`, with a value for each of the algorithm's streams of rewards."""
        network, streams = self.network.build(env.observation_space, env.action_space), len(self.algorithm.streams)
        return network if streams == 1 else network.with_streams(streams)

    def problem(self, env: VectorEnv | GraphEnv) -> Problem:
        """The problem that a runner is built from, with `env` for the environments."""
        network, root = self.network_for(env), self.root
        return Problem(
            env,
            network,
            self.algorithm,
            self.ppo,
            self.num_iterations,
            root.precision,
            root.device,
            root.env.rescale_actions,
        )

    def of_each_seed(self) -> list[Config]:
        """The configuration of each of the `num_seeds` runs."""
        if self.root.num_seeds == 1:
            return [self]
        seeds = range(self.root.seed, self.root.seed + self.root.num_seeds)
        return [
            replace(self, root=replace(self.root, seed=seed), resolved=self.resolved | {"seed": seed}) for seed in seeds
        ]

    @property
    def job_folder(self) -> Path:
        """By which a command is known: the folder of its first run that is not complete, else of its first."""
        folders = self.folders
        return next((folder for folder in folders if not (folder / "result.json").exists()), folders[0])

    @property
    def folders(self) -> list[Path]:
        """Of the command's runs, one for each seed, as `rerun` chooses them now."""
        return [choose_folder(config.run_folder, self.root.rerun) for config in self.of_each_seed()]

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What is trained, but for the seed; see ppo_bench/configuration/identity.py."""
        return identity(self.hashed, self._loaded, "cuda" if has_nvidia_gpu() else "cpu")

    @property
    def _loaded(self) -> str | None:
        """The digest of what the run starts from, wherever that lies."""
        return checkpoint.digest(self.source.arrays) if self.source else None

    @property
    def experiment(self) -> str:
        """`<env>-<backend>-<framework>-<hash>`; the hash is of the identity."""
        return self._experiment(self.task.name, self.identity)

    def _experiment(self, name: str, hashed: dict[str, Any]) -> str:
        names = (name, self.backend.name, self.framework.name, digest(hashed))
        return "-".join(file_name(name) for name in names)

    @property
    def run_folder(self) -> Path:
        """`<outputs>/<name>/<experiment>/seed<k>`, or where a run of an earlier version lies that had another hash."""
        former = former_identity(self.hashed, self._loaded)
        experiments = (self.experiment, self._experiment(former["env"]["name"], former))
        above, seed = Path(self.root.outputs) / self.root.name, f"seed{self.root.seed}"
        folders = [above / experiment / seed for experiment in experiments]
        return next((folder for folder in folders if folder.exists()), folders[0])


def load_config(overrides: Sequence[str], name: str = "config", schema: type[RootSchema] = RootSchema) -> Config:
    """Compose `conf/<name>.yaml`, of type `schema`, with `overrides` and check it. Raises `ConfigError` with one line.

    Whether its framework and backend can run it is left to those who do: `config.require()`. An environment that is
    named by `env.id` alone has no file that knows its actions: for those of floats `ppo=continuous` is chosen.
    """
    config = checked(compose_root(name, overrides), name, schema)
    group_named = any(word.lstrip("+").startswith(("env=", "ppo=", "experiment=")) for word in overrides)
    if config.root.env.id is None or group_named or not acts_by_floats(config.backend, config.task):
        return config
    note = f"{config.task.id} has actions of floats: ppo=continuous; name another group to choose otherwise"
    return replace(checked(compose_root(name, [*overrides, "ppo=continuous"]), name, schema), note=note)


def recorded_config(recorded: Mapping[str, Any], changes: Mapping[str, Any]) -> Config:
    """The configuration that a run.json holds as plain values, with `changes` in place of its root keys or groups.

    Keys that are younger than the run have their defaults. Raises `ConfigError`.
    """
    defaults: Any = OmegaConf.to_container(compose_root("config", []))
    own: Any = {**recorded, **changes, "tracker": {}}
    kept = {key: value for key, value in defaults.items() if key != "env" and not (key in _BUILDS and key in own)}
    merged: Any = OmegaConf.merge(kept, own)
    return checked(merged)


def checked(composed: DictConfig, name: str = "config", schema: type[RootSchema] = RootSchema) -> Config:
    """The configuration that `conf/<name>.yaml` was composed to. Raises `ConfigError` with one line."""
    config = _typed_config(composed, name, schema)
    check_values(config)
    config.task  # noqa: B018 (raises if the backend has no such environment)
    return config


def _typed_config(composed: DictConfig, name: str, schema: type[RootSchema]) -> Config:
    root = typed("", schema, composed, name)
    groups = {group: getattr(root, group) for group in ("framework", "backend", "network", "algorithm")}
    ppo = typed("ppo", Hyperparameters, root.ppo)
    choices = {group: typed(group, _target(group, node), node) for group, node in groups.items()}
    trackers = {key: typed(f"tracker.{key}", _target("tracker", node), node) for key, node in root.tracker.items()}
    # From the typed objects, so that 1 and 1.0 are the same configuration.
    resolved, hashed = (
        of(root)
        | {"ppo": of(ppo)}
        | {group: {"_target_": groups[group]["_target_"]} | of(choice) for group, choice in choices.items()}
        for of in (asdict, plain)
    )
    for key, tracker in trackers.items():
        resolved["tracker"][key] |= asdict(tracker)
    return Config(root=root, ppo=ppo, resolved=resolved, hashed=hashed, trackers=trackers, **choices)


def _target(group: str, node: Any) -> Any:
    """The class that the `_target_` of a group's choice names."""
    try:
        module, _, name = node["_target_"].rpartition(".")
        cls = getattr(importlib.import_module(module), name)
    except Exception as error:  # importing whatever the user named
        raise ConfigError(f"{group}._target_ names no class that can be imported: {one_line(error)}") from error
    if not (is_dataclass(cls) and hasattr(cls, _BUILDS[group])):
        raise ConfigError(f"{group}._target_={node['_target_']} is not a choice of the group {group}")
    return cls
