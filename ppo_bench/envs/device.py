"""The backend `device`: environments on the device that learns, by id. JAX is imported only by those written in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from ppo_bench.common.classes import import_class
from ppo_bench.common.errors import ConfigError, as_config_error, require
from ppo_bench.envs.base import Task
from ppo_bench.envs.spaces import require_supported_spaces
from ppo_bench.envs.turns import require_players
from ppo_bench.tuning.machine import share_gpu_memory

if TYPE_CHECKING:
    from ppo_bench.envs.dynamics.base import Dynamics
    from ppo_bench.envs.dynamics.env import DynamicsEnv

DYNAMICS = {
    "CartPole-v1": "ppo_bench.envs.dynamics.cartpole.CartPole",
    "Acrobot-v1": "ppo_bench.envs.dynamics.acrobot.Acrobot",
    "MountainCar-v0": "ppo_bench.envs.dynamics.mountain_car.MountainCar",
    "MountainCarContinuous-v0": "ppo_bench.envs.dynamics.mountain_car.MountainCarContinuous",
    "Pendulum-v1": "ppo_bench.envs.dynamics.pendulum.Pendulum",
    "ProofOfMemory-v0": "ppo_bench.envs.proof_of_memory.ProofOfMemory",
}
"""Path of the `Dynamics` class of each id; the id `module:Class` names one of the user's own."""

GYMNAX_METHODS = ("reset_env", "step_env")
"""Methods by which a class with gymnax's interface is known; it also needs `default_params` and the two spaces."""

MINATAR = tuple(f"minatar-{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders"))
"""Ids of the MinAtar games of the package pgx."""

BRAX = tuple(f"brax-{task}" for task in ("ant", "humanoid", "halfcheetah", "hopper", "walker2d", "reacher"))
"""Ids of the robot tasks of the package brax."""

GAMES = ("tic_tac_toe", "connect_four", "othello", "kuhn_poker")
"""Ids of the turn-based games of the package pgx."""


DEEP_SEA = tuple(f"DeepSea{size}-v0" for size in range(10, 41))
"""Ids of deep sea (ppo_bench/envs/deep_sea.py), one for each size."""


CONSTRUCTORS: dict[str, tuple[str, tuple[Any, ...]]] = {
    **{env_id: (path, ()) for env_id, path in DYNAMICS.items()},
    **{env_id: ("ppo_bench.envs.jax.pgx_games.MinAtar", (env_id,)) for env_id in MINATAR},
    **{env_id: ("ppo_bench.envs.jax.brax.Brax", (env_id,)) for env_id in BRAX},
    **{env_id: ("ppo_bench.envs.deep_sea.DeepSea", (10 + k,)) for k, env_id in enumerate(DEEP_SEA)},
}
"""Path and arguments of the `Dynamics` class of each id of one player."""


@dataclass(frozen=True)
class DeviceBackend:
    """`backend=device`, environments inside a JAX program, or as tensors of PyTorch."""

    in_graph: ClassVar[bool] = True
    vmappable: ClassVar[bool] = True
    name: str

    def libraries(self, env_id: str) -> tuple[str, ...]:
        """See `Backend`; PyTorch steps those of one's own dynamics that are `PortableDynamics`."""
        portable = env_id in (*DYNAMICS, *DEEP_SEA)
        if ":" in env_id:
            from ppo_bench.envs.dynamics.base import PortableDynamics

            portable = issubclass(import_class("env.id", env_id.replace(":", ".")), PortableDynamics)
        return ("jax", "torch") if portable else ("jax",)

    def make(self, task: Task) -> DynamicsEnv:
        """The environments of `task`. Raises `ConfigError` if its id is unknown or a package is missing."""
        task.require_no_wrappers("device", kwargs_too=":" not in task.id)
        if task.id not in (*CONSTRUCTORS, *GAMES) and ":" not in task.id:
            choices = [*DYNAMICS, f"{DEEP_SEA[0]} to {DEEP_SEA[-1]}", *MINATAR, *GAMES, *BRAX]
            raise ConfigError(
                f"env.id={task.id}: backend=device has {', '.join(choices)}, and module:Class of your own"
            )
        if task.atari:
            raise ConfigError(f"{task.id} is not an Atari game: add env.atari=null")
        if self.libraries(task.id) == ("jax",):
            require("jax", "jax", f"{task.id} on backend=device")
            share_gpu_memory()  # first, since constructors of dynamics may compute on the GPU
        for ids, package, extra in (((*MINATAR, *GAMES), "pgx", "minatar"), (BRAX, "brax", "brax")):
            if task.id in ids:
                require(package, extra, f"{task.id} on backend=device")
        if task.id in GAMES:
            from ppo_bench.envs.jax.pgx_games import JaxGames

            return JaxGames(task)
        require_players(task, 1)
        from ppo_bench.envs.dynamics.env import DynamicsEnv, require_shapes

        if task.id in CONSTRUCTORS:
            path, arguments = CONSTRUCTORS[task.id]
            return DynamicsEnv(import_class(task.id, path)(*arguments), task.num_envs)
        with as_config_error(f"{task.id} on backend=device"):
            dynamics = _own_dynamics(task)
            require_supported_spaces(task, dynamics.observation_space, dynamics.action_space)
            require_shapes(f"env.id={task.id}", dynamics)
            return DynamicsEnv(dynamics, task.num_envs)


def _own_dynamics(task: Task) -> Dynamics:
    """The user's own dynamics, or environment with gymnax's interface, by the id `module:Class`; `env.kwargs` are
    arguments of the constructor of dynamics, or parameters of gymnax's."""
    cls = import_class("env.id", task.id.replace(":", "."))
    if all(hasattr(cls, name) for name in GYMNAX_METHODS):
        from ppo_bench.envs.jax.gymnax import Gymnax

        dynamics: Dynamics = Gymnax(cls(), task.kwargs)
    else:
        dynamics = cls(**task.kwargs)
    if missing := [
        name for name in ("reset", "step", "observe", "time_limit", "num_words") if not hasattr(dynamics, name)
    ]:
        raise ConfigError(f"env.id={task.id}: a Dynamics (docs/environments.md) has {', '.join(missing)} too")
    for name in ("time_limit", "num_words"):
        if not (isinstance(value := getattr(dynamics, name), int) and value >= 1):
            raise ConfigError(f"env.id={task.id}: {name}={value} must be an integer, at least 1 (docs/environments.md)")
    return dynamics
