"""The EnvPool backend: environments in C++ threads, with native next-step autoreset (EnvPool >= 1.0)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError, one_line, require
from ppo_bench.common.values import NOT_TRAINED
from ppo_bench.envs.base import LIBRARIES, NO_LIMIT, Seen, Step, Task
from ppo_bench.envs.envpool_options import checked_options, imported_envpool
from ppo_bench.envs.spaces import supported_spaces
from ppo_bench.envs.turns import games_of, require_players, seen_by_rows, step_of_rows
from ppo_bench.envs.vectors import Vectors, categories
from ppo_bench.tuning.follow import Followers

QUICK = ("Acrobot-", "CartPole-", "MountainCar", "Pendulum-")
"""Prefixes of the ids of environments whose step takes about a microsecond, far less than waking a worker thread."""
QUICK_ENVS = 64
"""Up to this many `QUICK` environments share a single thread."""
TOLD = ("lives", "terminated", "reward", "current_player", "legal_action_mask")
"""Keys of `info` that `as_step` reads, for Atari games and for turn-based games."""


@dataclass(frozen=True)
class EnvPoolBackend:
    """`backend=envpool`; conf/backend/envpool.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    name: str
    num_threads: int = field(metadata=NOT_TRAINED)

    def libraries(self, env_id: str) -> tuple[str, ...]:
        """See `Backend.libraries`."""
        return LIBRARIES

    def require(self) -> None:
        """Raise `ConfigError` if EnvPool is not installed or an option is out of range."""
        require("envpool", "envpool", "backend=envpool")
        if self.num_threads < 0:
            raise ConfigError(f"backend.num_threads={self.num_threads}: must be at least 1, or 0 for the default")

    def make(self, task: Task) -> EnvPoolEnv:
        """The environments of `task`."""
        return EnvPoolEnv(task, self.num_threads or (1 if _one_thread_does(task) else 0))


class EnvPoolEnv:
    """A `VectorEnv` over one EnvPool pool."""

    def __init__(self, task: Task, num_threads: int, render_mode: str | None = None) -> None:
        import gymnasium  # noqa: F401 (its import resets warning filters, so it precedes ours)

        envpool = imported_envpool()
        task.plain("envpool")
        self.num_envs, self.players = task.num_envs, task.players
        self._id = task.id
        self._options = {"num_envs": games_of(task), "num_threads": num_threads, **checked_options(envpool, task)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium warns of the precision of EnvPool's bounds
            try:
                spec = envpool.make_spec(task.id, **self._options)
            except (TypeError, ValueError, AssertionError, RuntimeError) as error:
                raise ConfigError(f"EnvPool cannot make {task.id!r}: {one_line(error)}") from error
            vectors = Vectors(categories(task.id, spec.gymnasium_observation_space))
            self.observation_space = vectors.space
            self.action_space = spec.gymnasium_action_space
            require_players(task, spec.config.max_num_players)
            self.shown = Shown(vectors, task.players, _mask(spec))
            self.masks_actions = self.shown.mask is not None
            if self.players > 1 and not (self.masks_actions and "info:current_player" in spec.state_array_spec):
                raise ConfigError(f"{task.id}: EnvPool does not say whose turn it is; such games are not played here")
            limit = int(spec.config.max_episode_steps)
            if limit < 1:
                raise ConfigError(f"env.kwargs.max_episode_steps={limit}: must be at least 1 on backend=envpool")
            self.time_limit = limit if limit < NO_LIMIT else None
        supported_spaces(task, self.observation_space, self.action_space)
        self._drawn = {"render_mode": render_mode} if render_mode else {}
        self._kept = task.info
        self.told: dict[str, np.ndarray] = {}
        self._pool: Any = None
        self._core: Core | None = None
        self._threads = Followers()
        self._follows = num_threads == 1 and task.tuning.follow_caller

    @property
    def pool(self) -> Any:
        """EnvPool's own object, as built by the last reset."""
        return self._pool

    def reset(self, seeds: Sequence[int]) -> Seen:
        """See `VectorEnv.reset`. It builds a new pool, since EnvPool takes seeds only when it is built."""
        import envpool

        self.close()
        with self._threads.starting(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # `seed=k` would give environment i the seed k + i, so that seeds 1 and 2 would share all but one stream.
            options = {**self._options, "env_seed": list(seeds)[:: self.players]}
            self._pool = envpool.make_gymnasium(self._id, **options, **self._drawn)
            obs, info = self._pool.reset()
        self._core = Core(self._pool, self.players, self._kept)
        self._resets, self._acts = np.zeros(self.num_envs, np.bool_), np.ones(self.num_envs, np.bool_)
        if not self.masks_actions:
            return Seen(self.shown.arranged(obs))
        arrays = (*self.shown.turns(obs, info), self.shown.arranged(obs))
        turn, legal, obs = (in_order(info["env_id"], array) for array in arrays)
        seen = seen_by_rows(np, self.players, obs, turn, legal)
        self._acts = seen.acts
        return seen

    def step(self, actions: np.ndarray) -> Step:
        """See `VectorEnv.step`."""
        assert self._core, "reset comes first"
        if self._follows:  # the single worker thread and this thread never run at the same time
            self._threads.gather()
        if self.players > 1:
            actions = of_movers(actions, self._acts, self.players)
        given = self._core.step(actions)
        step, info = as_step(self.shown, self._resets, *given), given[-1]
        self.told = {name: info[name] for name in self._kept if name in info}
        self._resets = step.terminated | step.truncated
        self._acts = self._acts if step.acts is None else step.acts
        return step

    def render(self) -> np.ndarray:
        """A frame `[H, W, 3]` uint8 of the first environment; only with `render_mode="rgb_array"`."""
        frame: np.ndarray = self._pool.render()[0]
        return frame

    def close(self) -> None:
        """Stop the pool's threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = self._core = None  # both hold its memory


class Core:
    """The step of a pool at the level of EnvPool's C++ core, for EnvPool 1.2.

    It avoids the dictionaries of EnvPool's Python wrapper, which take longer than a step of CartPole
    (docs/performance.md). Results equal those of `pool.step`, bit for bit.
    """

    def __init__(self, pool: Any, players: int, kept: Sequence[str] = ()) -> None:
        self._send, self._recv = pool._send, pool._recv
        self._action_dtype = pool.spec.action_array_spec["action"].dtype
        self._ids = pool.all_env_ids
        keys = list(pool._state_keys)
        self._games = keys.index("info:env_id") if players > 1 else None
        self._reward, self._done, self._trunc = (keys.index(name) for name in ("reward", "done", "trunc"))
        self._info = {name: keys.index(f"info:{name}") for name in (*TOLD, *kept) if f"info:{name}" in keys}
        parts = {
            key.removeprefix("obs:").replace(".", ":"): i
            for i, key in enumerate(keys)
            if key == "obs" or key.startswith("obs:")
        }
        self._obs: int | dict[str, int] = next(iter(parts.values())) if len(parts) == 1 else parts

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Observations, rewards, terminated, truncated, and the entries of `info` in `TOLD` and `kept`."""
        self._send([self._ids, self._ids, actions.astype(self._action_dtype, order="C")])
        arrays = self._recv()
        if self._games is not None:
            arrays = [in_order(arrays[self._games], array) for array in arrays]
        obs = arrays[self._obs] if isinstance(self._obs, int) else {k: arrays[i] for k, i in self._obs.items()}
        truncated = arrays[self._trunc]
        info = {name: arrays[i] for name, i in self._info.items()}
        return obs, arrays[self._reward], arrays[self._done] & ~truncated, truncated, info


def _one_thread_does(task: Task) -> bool:
    """Whether one thread is fastest: waking further threads would take longer than the steps that they would do."""
    return task.num_envs == 1 or (task.id.startswith(QUICK) and task.num_envs <= QUICK_ENVS)


def of_movers(actions: np.ndarray, acts: np.ndarray, players: int) -> np.ndarray:
    """The actions `[G]` that EnvPool takes: for each of the G games, the action of the row that acts."""
    rows = np.arange(0, len(actions), players) + acts.reshape(-1, players).argmax(1)
    return actions[rows]


def in_order(games: np.ndarray, array: np.ndarray) -> np.ndarray:
    """`array`, with G games or the players of G games along axis 0, sorted by the games' numbers `games [G]`. EnvPool
    returns games of several players in the order in which its threads finish."""
    by_game = array.reshape(len(games), -1, *array.shape[1:])
    return by_game[np.argsort(games)].reshape(array.shape)


class Shown(NamedTuple):
    """The layout of a pool's results, arrays of NumPy or JAX."""

    vectors: Vectors
    players: int
    mask: str | None
    """The dictionary with the mask of legal choices: "info", "obs", or None if there is no mask."""

    def arranged(self, obs: Any) -> Any:
        """Observations as one array."""
        return obs if self.vectors.as_given else self.vectors(obs)

    def turns(self, obs: Any, info: dict[str, Any]) -> tuple[Any, Any]:
        """The number of the player to move, `[G]`, and that player's legal choices, `[G, A]`."""
        legal = obs["action_mask"] if self.mask == "obs" else info["legal_action_mask"]
        return info.get("current_player", legal[:, 0] * 0), legal


def _mask(spec: Any) -> str | None:
    """See `Shown.mask`."""
    arrays, actions = spec.state_array_spec, spec.gymnasium_action_space
    if "info:legal_action_mask" in arrays:
        return "info"
    shape = list(arrays["obs:action_mask"].shape) if "obs:action_mask" in arrays else []
    return "obs" if shape and shape == [getattr(actions, "n", None)] else None


def as_step(
    shown: Shown,
    resets: Any,
    obs: Any,
    reward: Any,
    terminated: Any,
    truncated: Any,
    info: dict[str, Any],
) -> Step:
    """The `Step` from a pool's results, arrays of NumPy or JAX; `resets [N]` marks reset steps."""
    turns = shown.turns(obs, info) if shown.mask else None
    obs = shown.arranged(obs)
    reward = reward * ~resets  # some dm_control tasks return the reward of the first state at a reset step
    if "lives" in info:  # Atari: `terminated` includes lost lives, info["terminated"] is only the end of the game
        # It is also set where a game ends at the time limit, which EnvPool calls truncated (ppo_bench/envs/limits.py).
        game_over = info["terminated"] != 0
        terminated, truncated = terminated | game_over, truncated & ~game_over
        return Step(obs, reward, terminated, truncated, game_over | truncated, info["reward"])
    step = Step(obs, reward, terminated, truncated, terminated | truncated, reward)
    return step_of_rows(reward.__array_namespace__(), shown.players, step, *turns) if turns else step
