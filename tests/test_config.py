"""Configurations composed from command lines, and the run folders that follow from them."""

from __future__ import annotations

import functools
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
from omegaconf import OmegaConf
from settings import env_ids

from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.paths import CONF
from ppo_bench.common.values import file_name
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import Atari, Task
from ppo_bench.networks.spec import Auto
from ppo_bench.sweeps.expand import expand

CLASSIC: dict[str, Any] = OmegaConf.load(CONF / "ppo" / "classic.yaml")  # type: ignore[assignment]
del CLASSIC["defaults"]
ENVS = sorted(path.stem for path in (CONF / "env").glob("*.yaml"))
OFFERED = env_ids()
ANY_GAME = {"atari": "breakout", "procgen": "starpilot", "atari_two_players": "pong-v3"}
"""Files that others build on, and the game that they name."""


def changed(value: Any) -> Any:
    """Another value of the same type that is within range, and keeps minibatches whole."""
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, int):
        return 2 * value
    return 0.01 if value in (None, 0.0) else 0.5 * value


@functools.cache
def experiment_folder(*overrides: str) -> Path:
    return load_config(overrides).run_folder.parent


def test_without_overrides_torch_eager_learns_cartpole_on_gymnasium_with_its_own_hyperparameters() -> None:
    config = load_config([])
    assert config.framework.name == "torch_eager"
    assert (config.task.name, config.task.id) == ("cartpole", "CartPole-v1")
    assert config.backend.name == "gymnasium"
    assert config.network == Auto([64, 64], "tanh")
    assert asdict(config.ppo) == dict(CLASSIC)
    assert (config.root.seed, config.root.total_timesteps, config.root.precision) == (1, 500_000, "float32")
    assert config.num_iterations == 976


def test_an_env_brings_its_backend_hyperparameters_budget_and_checkpoint_interval() -> None:
    atari, mujoco = load_config(["env=breakout"]), load_config(["env=hopper"])
    assert (atari.backend.name, atari.task.id, atari.root.total_timesteps) == ("envpool", "Breakout-v5", 10_000_000)
    assert (atari.ppo.num_envs, atari.ppo.num_steps, atari.ppo.clip_coef) == (8, 128, 0.1)
    assert atari.task.atari == Atari(episodic_life=True, reward_clip=True)
    assert atari.root.checkpoint.every_iterations == 500
    assert (mujoco.backend.name, mujoco.task.id, mujoco.root.total_timesteps) == ("gymnasium", "Hopper-v4", 1_000_000)
    assert (mujoco.ppo.num_envs, mujoco.ppo.num_steps, mujoco.ppo.norm_obs) == (1, 2048, True)
    assert mujoco.task.atari is None
    assert mujoco.root.checkpoint.every_iterations == 50


@pytest.mark.parametrize("overrides", [["env=breakout", "{}"], ["{}", "env=breakout"]], ids=["after", "before"])
def test_the_command_line_beats_the_env_wherever_it_stands(overrides: list[str]) -> None:
    for key, value in [("ppo.num_envs", 16), ("total_timesteps", 4096), ("checkpoint.every_iterations", 7)]:
        config = load_config([override.format(f"{key}={value}") for override in overrides])
        assert OmegaConf.select(OmegaConf.create(config.resolved), key) == value
    groups = load_config([override.format("ppo=classic") for override in overrides] + ["backend=gymnasium"])
    assert groups.ppo.clip_coef == 0.2
    assert groups.task.id == "BreakoutNoFrameskip-v4"


def test_the_command_line_beats_an_experiment() -> None:
    overrides = ["ppo.gamma=0.5", "name=mine", "backend=envpool", "total_timesteps=1024"]
    config = load_config(["experiment=cleanrl/ppo", *overrides])
    assert (config.ppo.gamma, config.root.name, config.root.total_timesteps) == (0.5, "mine", 1024)
    assert config.backend.name == "envpool"
    assert config.ppo.bootstrap_truncated is False


def test_a_run_folder_says_what_was_run() -> None:
    folder = load_config(["env=hopper", "backend=gymnasium", "outputs=/data/runs", "name=a/b", "seed=7"]).run_folder
    assert folder.name == "seed7"
    assert folder.parent.name.startswith("hopper-gymnasium-torch_eager-")
    assert folder.parent.parent == Path("/data/runs/a/b")
    assert len(folder.parent.name.rpartition("-")[2]) == 8


def test_a_folder_may_begin_at_home_and_have_any_name() -> None:
    for word, folder in (("outputs='~/runs'", Path.home() / "runs"), ("outputs='läufe/ü'", Path("läufe/ü"))):
        assert load_config([word]).run_folder.is_relative_to(folder)


@dataclass(frozen=True)
class WithoutLibraries:
    """A backend of a user's that lacks a method."""

    in_graph: ClassVar[bool] = True
    vmappable: ClassVar[bool] = False
    name: str

    def make(self, task: Task) -> None:
        pass


def test_a_backend_in_the_program_says_which_libraries_step_it() -> None:
    with pytest.raises(ConfigError, match="is not a choice of the group backend: it has no `libraries`"):
        load_config(["env.id=CartPole-v1", "backend=device", "backend._target_=tests.test_config.WithoutLibraries"])


def test_every_hyperparameter_makes_another_experiment() -> None:
    """The folder's hash is that of `identity`, in which each of them is, with another value."""
    names = [field.name for field in fields(Hyperparameters)]
    values = {name: changed(CLASSIC[name]) for name in names} | {"anneal_timesteps": 4096}
    words = [f"ppo.{name}={value}" for name, value in values.items() if name != "final_learning_rate"]
    annealed = load_config([f"ppo.final_learning_rate={values['final_learning_rate']}"])  # it needs anneal_lr=true
    usual, others = load_config([]), load_config(words)
    assert len({config.run_folder for config in (usual, others, annealed)}) == 3
    for name in names:
        config = annealed if name == "final_learning_rate" else others
        assert config.identity["ppo"][name] != usual.identity["ppo"].get(name), name


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("CartPole-v1", "CartPole-v1"),
        ("ALE/Pong-v5", "ALE_Pong-v5"),
        ("module:Env v0", "module_Env_v0"),
        ("../../etc", "_.._etc"),
        ("..", "_"),
        ("", "_"),
    ],
)
def test_names_are_made_safe_for_files(name: str, safe: str) -> None:
    assert file_name(name) == safe


def test_every_number_among_the_hyperparameters_has_a_range() -> None:
    numbers = {each.name for each in fields(Hyperparameters) if str(each.type) != "bool"}
    assert len(numbers) == 23
    assert {each.name for each in fields(Hyperparameters) if "range" in each.metadata} == numbers


def test_the_yaml_that_explains_the_hyperparameters_has_all_of_them_and_no_others() -> None:
    assert list(CLASSIC) == [field.name for field in fields(Hyperparameters)]


@pytest.mark.parametrize(
    ("env", "backend", "id_"),
    [row for row in OFFERED if row[0] in ("cartpole", "hopper", "pong", "coinrun", "connect_four", "minatar_breakout")],
)
def test_an_env_composes_with_each_backend_that_it_offers(env: str, backend: str, id_: str) -> None:
    """One of each kind: files of a kind differ in ids, which the next test composes."""
    config = load_config([f"env={env}", f"backend={backend}"])
    assert (config.task.name, config.task.id, config.backend.name) == (env, id_, backend)


def only_names_a_game(env: str) -> bool:
    """Whether all else in a file of conf/env is that of the suite."""
    file: Any = OmegaConf.load(CONF / f"env/{env}.yaml")
    return set(file) == {"defaults", "env"} and set(file.env) == {"game"}


@pytest.mark.parametrize("env", [env for env in ENVS if not only_names_a_game(env)])
def test_an_env_brings_a_backend_that_it_offers_and_windows_of_whole_episodes(env: str) -> None:
    """A window between restarts also has room for resets, else full episodes are dropped and short ones counted."""
    config = load_config([f"env={env}"])
    assert config.task.name == ANY_GAME.get(env, env)
    assert (env, config.backend.name, config.task.id) in OFFERED
    assert config.num_iterations >= config.root.checkpoint.every_iterations
    limits = {"minatar": 10_000, "brax": 1_000, "dmc": 1_000, "acrobot": 500, "cartpole": 500, "pendulum": 200}
    limits |= {"connect_four": 43}
    limit = 27_000 if config.task.atari else next((n for name, n in limits.items() if env.startswith(name)), 1_000)
    window = config.root.checkpoint.every_iterations * config.ppo.num_steps
    whole = window // limit
    assert whole >= 2
    assert whole > 20 or whole * limit + whole - 1 < window  # of many, one less is no bias


@pytest.mark.parametrize(
    ("words", "seeds"),
    [
        (["env=hopper", "backend=envpool", "seed=3"], [3]),
        (["env.id=Pendulum-v1", "backend=envpool"], [1]),
        (["framework=jax_xla", "backend=device", "seed=4", "num_seeds=2"], [4, 5]),
    ],
)
def test_the_overrides_of_a_configuration_compose_it_again(words: list[str], seeds: list[int]) -> None:
    configs = load_config(words).of_each_run()
    assert [config.root.seed for config in configs] == seeds
    again = [load_config(config.overrides) for config in configs]
    assert [config.run_folder for config in again] == [config.run_folder for config in configs]
    assert {config.root.num_seeds for config in again} == {1}


@pytest.mark.parametrize("name", ["1.10", "2024_10", "007", "true", "1e3", "a", "läufe/ü"])
def test_a_name_in_quotes_stays_as_it_is(name: str) -> None:
    config = load_config([f"name='{name}'", f"outputs='{name}'"])
    assert (config.root.name, config.root.outputs) == (name, name)
    jobs = expand([f"name='{name}',b"])
    assert [load_config(job).root.name for job in jobs] == [name, "b"]


def test_a_hidden_name_is_refused_since_no_command_would_find_its_runs() -> None:
    for name in (".trial", "a/.b"):
        with pytest.raises(
            ConfigError, match=re.escape(f"name={name}: must be a relative path without '..' or hidden")
        ):
            load_config([f"name={name}"])
