"""The EnvPool backend: environments in C++ threads, with native next-step autoreset (EnvPool >= 1.0)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.errors import ConfigError, nearest, one_line
from ppo_bench.common.values import AT_LEAST_1, NOT_HASHED, added_field, within
from ppo_bench.envs.base import NO_LIMIT, EnvStep, PolicyInput, Task
from ppo_bench.envs.observation_flattening import declare_categories, observation_flattener
from ppo_bench.envs.spaces import require_supported_spaces
from ppo_bench.envs.turns import get_num_games, make_player_inputs, make_player_steps, require_players
from ppo_bench.tuning.thread_affinity import FollowerThreads

FAST_ENV_PREFIXES = ("Acrobot-", "CartPole-", "MountainCar", "Pendulum-")
"""Prefixes of the ids of environments whose step takes about a microsecond, far less than waking a worker thread."""
MAX_ENVS_PER_THREAD = 64
"""Up to this many environments with one of `FAST_ENV_PREFIXES` share a single thread."""
INFO_KEYS = ("lives", "terminated", "reward", "current_player", "legal_action_mask")
"""Keys of `info` that a step reads, for Atari games and for turn-based games."""
RESERVED_OPTIONS = {
    *("num_envs", "num_threads", "batch_size", "seed", "env_seed", "max_num_players", "gym_reset_return_info"),
    *("task", "task_name", "env_name"),
}
"""Options of a pool that follow from the task or the backend, and that `env.kwargs` must not have."""
ATARI_TASK_OPTIONS = {
    *("frame_skip", "stack_num", "noop_max", "max_episode_steps", "repeat_action_probability", "full_action_space"),
    *("use_fire_reset", "zero_discount_on_life_loss", "img_height", "img_width", "gray_scale", "use_inter_area_resize"),
    *("episodic_life", "reward_clip"),
}
"""Options of Atari games that are part of the task; another value would not be the task on gymnasium."""
CONTACT_FORCE_IDS = ("Humanoid-v4", "HumanoidStandup-v4")
"""Ids whose observations have contact forces, which are all 0 on EnvPool by default, and not on gymnasium."""


@dataclass(frozen=True)
class EnvPoolBackend:
    """`backend=envpool`; conf/backend/envpool.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    package: ClassVar[str] = "envpool"
    name: str
    num_threads: int = field(
        metadata=NOT_HASHED | within(lambda value: value >= 0, "must be at least 1, or 0 for the default")
    )
    num_groups: int = added_field(1, AT_LEAST_1)

    def make(self, task: Task) -> EnvPoolEnv:
        """The environments of `task`."""
        num_threads = self.num_threads or (1 if _needs_one_thread(task) else 0)
        return EnvPoolEnv(task, num_threads, waits=self.num_groups == 1)


class EnvPoolEnv:
    """A `VectorEnv` over one EnvPool pool."""

    def __init__(self, task: Task, num_threads: int, render_mode: str | None = None, waits: bool = True) -> None:
        """`waits` says that the caller does nothing else during a step."""
        import gymnasium  # noqa: F401 (its import resets warning filters, so it precedes ours)

        envpool = _import_envpool()
        task.require_no_wrappers("envpool", info_too=False)
        self.num_envs, self.players = task.num_envs, task.players
        self._id = task.id
        self._options = {"num_envs": get_num_games(task), "num_threads": num_threads, **pool_options(task)}
        if task.id not in (known := envpool.list_all_envs()):
            close = nearest(task.id, known)
            hint = f"did you mean {', '.join(close)}?" if close else "envpool.list_all_envs() lists them"
            raise ConfigError(f"EnvPool has no environment {task.id!r}; {hint}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium warns of the precision of EnvPool's bounds
            try:
                spec = envpool.make_spec(task.id, **self._options)
            except (ImportError, TypeError, ValueError, AssertionError, RuntimeError) as error:
                hint = "; Procgen needs Qt 5: make setup-procgen" if "Qt" in str(error) else ""
                raise ConfigError(f"EnvPool cannot make {task.id!r}: {one_line(error)}{hint}") from error
            space = declare_categories(task.id, spec.gymnasium_observation_space)
            flattener = observation_flattener(space)
            self.observation_space = flattener.space if flattener else space
            self.action_space = spec.gymnasium_action_space
            require_players(task, spec.config.max_num_players)
            self._flattener, self._mask = flattener, _mask(spec)
            self.masks_actions = self._mask is not None
            if self.players > 1 and not (self.masks_actions and "info:current_player" in spec.state_array_spec):
                raise ConfigError(f"{task.id}: EnvPool does not say whose turn it is; such games are not played here")
            limit = int(spec.config.max_episode_steps)
            if limit < 1:
                raise ConfigError(f"env.kwargs.max_episode_steps={limit}: must be at least 1 on backend=envpool")
            self.time_limit = limit if limit < NO_LIMIT else None
        require_supported_spaces(task, self.observation_space, self.action_space)
        self._drawn = {"render_mode": render_mode} if render_mode else {}
        self._info_keys = task.info
        self.episode_info: dict[str, np.ndarray] = {}
        self.pool: Any = None
        """EnvPool's own object, as built by the last reset."""
        self._core: PoolCore | None = None
        self._threads = FollowerThreads()
        self._follows = waits and num_threads == 1 and task.tuning.follow_caller

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`. It builds a new pool, since EnvPool takes seeds only when it is built."""
        import envpool

        self.close()
        with self._threads.track_new_threads(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # `seed=k` would give environment i the seed k + i, so that seeds 1 and 2 would share all but one stream.
            options = {**self._options, "env_seed": list(seeds)[:: self.players]}
            self.pool = envpool.make_gymnasium(self._id, **options, **self._drawn)
            obs, info = self.pool.reset()
        self._core = PoolCore(self.pool, self.players, self._info_keys)
        self._resets, self._policy_mask = np.zeros(self.num_envs, np.bool_), np.ones(self.num_envs, np.bool_)
        if not self.masks_actions:
            return PolicyInput(self._to_array(obs))
        arrays = (*self._turns(obs, info), self._to_array(obs))
        turn, action_mask, obs = (sort_by_game(info["env_id"], array) for array in arrays)
        policy_input = make_player_inputs(np, self.players, obs, turn, action_mask)
        self._policy_mask = policy_input.policy_mask
        return policy_input

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        self.step_async(actions)
        return self.step_wait()

    def step_async(self, actions: np.ndarray) -> None:
        """Begin a step, which `step_wait` ends."""
        assert self._core, "reset comes first"
        if self._follows:  # the single worker thread and this thread never run at the same time
            self._threads.pin_to_caller()
        if self.players > 1:
            actions = select_mover_actions(actions, self._policy_mask, self.players)
        self._core.send(actions)

    def step_wait(self) -> EnvStep:
        """The result of the step that `step_async` has begun."""
        assert self._core, "reset comes first"
        outputs = self._core.recv()
        step, info = self._to_env_step(*outputs), outputs[-1]
        self.episode_info = {name: info[name] for name in self._info_keys if name in info}
        self._resets = step.terminated | step.truncated
        self._policy_mask = self._policy_mask if step.policy_mask is None else step.policy_mask
        return step

    def _to_env_step(
        self, obs: Any, reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, info: dict[str, np.ndarray]
    ) -> EnvStep:
        """The `EnvStep` from a pool's results."""
        turns = self._turns(obs, info) if self._mask else None
        obs = self._to_array(obs)
        reward = reward * ~self._resets  # some dm_control tasks return the reward of the first state at a reset step
        if "lives" in info:  # Atari: `terminated` includes lost lives, info["terminated"] is only the end of the game
            # It is also set where a game ends at the time limit, which EnvPool calls truncated.
            game_over = info["terminated"] != 0
            terminated, truncated = terminated | game_over, truncated & ~game_over
            return EnvStep(obs, reward, terminated, truncated, game_over | truncated, info["reward"])
        step = EnvStep(obs, reward, terminated, truncated, terminated | truncated, reward)
        return make_player_steps(np, self.players, step, *turns) if turns else step

    def _to_array(self, obs: Any) -> np.ndarray:
        """Observations as one array."""
        array: np.ndarray = self._flattener(obs) if self._flattener else obs
        return array

    def _turns(self, obs: Any, info: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The number of the player to move, `[G]`, and that player's legal choices, `[G, A]`."""
        action_mask = obs["action_mask"] if self._mask == "obs" else info["legal_action_mask"]
        return info.get("current_player", action_mask[:, 0] * 0), action_mask

    def render(self) -> np.ndarray:
        """A frame `[H, W, 3]` uint8 of the first environment; only with `render_mode="rgb_array"`."""
        frame: np.ndarray = self.pool.render()[0]
        return frame

    def close(self) -> None:
        """Stop the pool's threads."""
        if self.pool is not None:
            self.pool.close()
            self.pool = self._core = None  # both hold its memory


class PoolCore:
    """The step of a pool at the level of EnvPool's C++ core, for EnvPool 1.2.

    It avoids the dictionaries of EnvPool's Python wrapper, which take longer than a step of CartPole
    (docs/performance.md). Results equal those of `pool.step`, bit for bit.
    """

    def __init__(self, pool: Any, players: int, info_keys: Sequence[str] = ()) -> None:
        self._send, self._recv = pool._send, pool._recv
        self._action_dtype = pool.spec.action_array_spec["action"].dtype
        self._ids = pool.all_env_ids
        keys = list(pool._state_keys)
        self._games = keys.index("info:env_id") if players > 1 else None
        self._reward, self._done, self._trunc = (keys.index(name) for name in ("reward", "done", "trunc"))
        self._info = {name: keys.index(f"info:{name}") for name in (*INFO_KEYS, *info_keys) if f"info:{name}" in keys}
        parts = {
            key.removeprefix("obs:").replace(".", ":"): i
            for i, key in enumerate(keys)
            if key == "obs" or key.startswith("obs:")
        }
        self._obs: int | dict[str, int] = next(iter(parts.values())) if len(parts) == 1 else parts

    def send(self, actions: np.ndarray) -> None:
        """Begin a step."""
        self._send([self._ids, self._ids, actions.astype(self._action_dtype, order="C")])

    def recv(self) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Observations, rewards, terminated, truncated, and the entries of `info` in `INFO_KEYS` and `info_keys`."""
        arrays = self._recv()
        if self._games is not None:
            arrays = [sort_by_game(arrays[self._games], array) for array in arrays]
        obs = arrays[self._obs] if isinstance(self._obs, int) else {k: arrays[i] for k, i in self._obs.items()}
        truncated = arrays[self._trunc]
        info = {name: arrays[i] for name, i in self._info.items()}
        return obs, arrays[self._reward], arrays[self._done] & ~truncated, truncated, info


def pool_options(task: Task) -> dict[str, Any]:
    """The options of a pool for `task`, but for sizes and seeds. Raises `ConfigError` if `env.kwargs` has these."""
    if fixed := set(task.kwargs) & (RESERVED_OPTIONS | (ATARI_TASK_OPTIONS if task.atari else set())):
        raise ConfigError(
            f"env.kwargs: {', '.join(sorted(fixed))} cannot be set there on backend=envpool: it follows from the task"
        )
    options: dict[str, Any] = {"post_constraint": True} if task.id in CONTACT_FORCE_IDS else {}
    if task.atari:  # EnvPool's defaults for all other options are the task on gymnasium
        options = {
            "episodic_life": task.atari.episodic_life,
            "reward_clip": task.atari.reward_clip,
            "stack_num": task.atari.frames,
            "repeat_action_probability": task.atari.repeat_action_probability,
        }
    return options | dict(task.kwargs)


def _import_envpool() -> Any:
    """The module `envpool`. Importing it reads the folder of its ROMs; raises `ConfigError` if that is missing."""
    try:
        import envpool
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"EnvPool and its ROMs cannot be loaded ({one_line(error)}): "
            "pip install --force-reinstall envpool envpool-assets"
        ) from error
    return envpool


def _needs_one_thread(task: Task) -> bool:
    """Whether one thread is fastest: waking further threads would take longer than the steps that they would do."""
    return task.num_envs == 1 or (task.id.startswith(FAST_ENV_PREFIXES) and task.num_envs <= MAX_ENVS_PER_THREAD)


def select_mover_actions(actions: np.ndarray, policy_mask: np.ndarray, players: int) -> np.ndarray:
    """The actions `[G]` that EnvPool takes: for each of the G games, the action of the row that acts."""
    rows = np.arange(0, len(actions), players) + policy_mask.reshape(-1, players).argmax(1)
    return actions[rows]


def sort_by_game(games: np.ndarray, array: np.ndarray) -> np.ndarray:
    """`array`, with G games or the players of G games along axis 0, sorted by the games' numbers `games [G]`. EnvPool
    returns games of several players in the order in which its threads finish."""
    by_game = array.reshape(len(games), -1, *array.shape[1:])
    return by_game[np.argsort(games)].reshape(array.shape)


def _mask(spec: Any) -> str | None:
    """The dictionary with the mask of legal choices: "info", "obs", or None if there is no mask."""
    arrays, actions = spec.state_array_spec, spec.gymnasium_action_space
    if "info:legal_action_mask" in arrays:
        return "info"
    shape = list(arrays["obs:action_mask"].shape) if "obs:action_mask" in arrays else []
    return "obs" if shape and shape == [getattr(actions, "n", None)] else None
