"""The EnvPool backend: environments in C++ threads, with native next-step autoreset (EnvPool >= 1.0)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.errors import ConfigError, nearest, require
from ppo_bench.envs.base import NO_LIMIT, Seen, Step, Task, supported_spaces
from ppo_bench.envs.envpool_results import Shown, as_step, in_order, mask_of, of_movers
from ppo_bench.envs.turns import games_of, require_players, seen_by_rows
from ppo_bench.envs.vectors import Vectors, categories
from ppo_bench.tuning.follow import Followers

QUICK = ("Acrobot-", "CartPole-", "MountainCar", "Pendulum-")
"""Prefixes of the ids of environments whose step takes about a microsecond, far less than waking a worker thread."""
QUICK_ENVS = 64
"""Up to this many `QUICK` environments share a single thread."""
SET_HERE = {
    *("num_envs", "num_threads", "batch_size", "seed", "env_seed", "max_num_players", "gym_reset_return_info"),
    *("task", "task_name", "env_name"),
}
"""Options of a pool that follow from the task, such as its id, and that `env.kwargs` must not have."""
TOLD = ("lives", "terminated", "reward", "current_player", "legal_action_mask")
"""Keys of `info` that `as_step` reads, for Atari games and for turn-based games."""
OF_THE_ATARI_TASK = {
    *("frame_skip", "stack_num", "noop_max", "max_episode_steps", "repeat_action_probability", "full_action_space"),
    *("use_fire_reset", "zero_discount_on_life_loss", "img_height", "img_width", "gray_scale", "use_inter_area_resize"),
}
"""Options of Atari games that are part of the task; another value would not be the task on gymnasium."""


@dataclass(frozen=True)
class EnvPoolBackend:
    """`backend=envpool`; conf/backend/envpool.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    name: str
    num_threads: int

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

        envpool = _envpool()
        keys = _keys(envpool, task)
        task.plain("envpool")
        self.num_envs, self.players = task.num_envs, task.players
        self._id = task.id
        self._options: dict[str, Any] = {"num_envs": games_of(task), "num_threads": num_threads}
        if task.atari:
            # EnvPool's defaults for all other options are the task on gymnasium.
            self._options |= {"episodic_life": task.atari.episodic_life, "reward_clip": task.atari.reward_clip}
            self._options |= {"stack_num": task.atari.frames}
            self._options |= {"repeat_action_probability": task.atari.repeat_action_probability}
            if "episodic_life" not in keys:
                raise ConfigError(f"{task.id} is not an Atari game: add env.atari=null")
        if unknown := set(task.kwargs) - keys:
            raise ConfigError(f"env.kwargs: {task.id} takes no {', '.join(sorted(unknown))} on backend=envpool")
        if taken := set(task.kwargs) & set(self._options):
            raise ConfigError(f"env.kwargs: {', '.join(sorted(taken))} is set by env.atari: change it there")
        if task.atari and (fixed := set(task.kwargs) & OF_THE_ATARI_TASK):
            raise ConfigError(f"env.kwargs: {', '.join(sorted(fixed))} is part of the Atari task and cannot be changed")
        self._options |= dict(task.kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium warns of the precision of EnvPool's bounds
            try:
                spec = envpool.make_spec(task.id, **self._options)
            except (TypeError, ValueError, AssertionError, RuntimeError) as error:
                raise ConfigError(f"EnvPool cannot make {task.id!r}: {' '.join(str(error).split())}") from error
            vectors = Vectors(categories(task.id, spec.gymnasium_observation_space))
            self.observation_space = vectors.space
            self.action_space = spec.gymnasium_action_space
            require_players(task, spec.config.max_num_players)
            self.shown = Shown(vectors, task.players, mask_of(spec))
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


def _envpool() -> Any:
    """The module `envpool`. Importing it reads the folder of its ROMs; raises `ConfigError` if that is missing."""
    try:
        import envpool
    except (ImportError, OSError) as error:
        said = " ".join(str(error).split())
        raise ConfigError(
            f"EnvPool and its ROMs cannot be loaded ({said}): pip install --force-reinstall envpool envpool-assets"
        ) from error
    return envpool


def _keys(envpool: Any, task: Task) -> set[str]:
    """Names of EnvPool's options for the environment of `task`, without `SET_HERE`.

    Raises `ConfigError` if EnvPool lacks the environment, or its ROM or Qt is missing.
    """
    known = envpool.list_all_envs()
    if task.id not in known and task.atari:  # EnvPool lists only games whose ROMs it finds
        ending = "-v5" if task.id.endswith("-v5") else ""  # as env.game=... is written, or as env.id=...
        game, games = task.id.removesuffix(ending), (name.removesuffix(ending) for name in _with_roms())
        close = nearest(game, games)
        hint = f"did you mean {', '.join(close)}? If not, its" if close else "if that is its name, its"
        raise ConfigError(
            f"EnvPool has no Atari game {game!r}; {hint} ROM is missing: pip install --force-reinstall envpool-assets"
        )
    if task.id not in known:
        close = nearest(task.id, known)
        hint = f"did you mean {', '.join(close)}?" if close else "envpool.list_all_envs() lists them"
        raise ConfigError(f"EnvPool has no environment {task.id!r}; {hint}")
    try:
        return set(envpool.make_spec(task.id).config._fields) - SET_HERE  # once: 0.1 s
    except ImportError as error:
        if "Qt" not in str(error):
            raise ConfigError(f"EnvPool cannot make {task.id!r}: {' '.join(str(error).split())}") from error
        raise ConfigError(
            f"{task.id} on EnvPool needs Qt 5 of the system (libqt5core5a and libqt5gui5 on Debian): make setup-procgen"
        ) from error


def _with_roms() -> list[str]:
    """Ids of the Atari games whose ROMs are installed."""
    from envpool.registration import registry

    return [env_id for env_id, (module, *_) in registry.specs.items() if module == "envpool.atari"]
