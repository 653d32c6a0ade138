"""The gymnasium backend: any registered environment, all in this process or each in a process of its own."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.classes import import_class
from ppo_bench.common.errors import ConfigError, RunError, exit_as_error, one_line, require
from ppo_bench.common.flattened import FlattenedBox, can_flatten, is_text, leaf_spaces_by_name
from ppo_bench.common.values import NOT_HASHED
from ppo_bench.envs.action_masks import MASK, add_action_masks, flatten_action_mask, masks_actions, missing_mask_message
from ppo_bench.envs.base import DEFAULT_INFO_KEYS, LIBRARIES, MAX_STEPS_PER_GAME, EnvStep, PolicyInput, Task
from ppo_bench.envs.env_validation import validate_env
from ppo_bench.envs.float_range import to_float32
from ppo_bench.envs.observation_flattening import RowFlattener, drop_texts, scale_bytes
from ppo_bench.envs.spaces import get_num_choices, require_supported_spaces
from ppo_bench.envs.turns import require_players
from ppo_bench.envs.vectorized import GymVectorEnv, get_spaces, require_vectorization

NORMALIZERS = {"NormalizeObservation": "ppo.norm_obs", "NormalizeReward": "ppo.norm_reward"}
"""Wrappers of gymnasium with running statistics, which a resumed run would begin anew, and keys that do the same."""


@dataclass(frozen=True)
class GymnasiumBackend:
    """`backend=gymnasium`; conf/backend/gymnasium.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    name: str
    vectorization: str = field(metadata=NOT_HASHED)

    def libraries(self, env_id: str) -> tuple[str, ...]:
        """See `Backend.libraries`."""
        return LIBRARIES

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range."""
        require_vectorization(self.vectorization)

    def make(self, task: Task) -> GymnasiumEnv:
        """The environments of `task`."""
        return GymnasiumEnv(task, self.vectorization)


class GymnasiumEnv:
    """A `VectorEnv` over gymnasium's `SyncVectorEnv` or `AsyncVectorEnv`."""

    def __init__(self, task: Task, vectorization: str, render_mode: str | None = None) -> None:
        build = functools.partial(_make_env, task, render_mode)
        try:
            # Built once in this process first, where an error has a readable cause; worker processes hide it.
            with exit_as_error(task.id):
                env = _make_task_env(task, render_mode, checked=False)
                validate_env(task.id, env)
                env = _prepare_env(task, env)
                self.masks_actions = masks_actions(task.id, env)
        except (ConfigError, RunError):
            raise
        except Exception as error:  # whatever the environment's own constructor raises
            if "mujoco" in str(error).lower():
                require("mujoco", "mujoco", f"{task.id} on backend=gymnasium")
            said = one_line(error) or type(error).__name__
            if isinstance(error, OSError) and task.atari:
                said = f"its ROM cannot be read ({said}): pip install --force-reinstall ale-py, which has it"
            if isinstance(error, ModuleNotFoundError):
                said = said.rstrip(".") + "; PYTHONPATH=FOLDER adds a folder"
            raise ConfigError(f"gymnasium cannot make {task.id!r}: {said}") from error
        require_supported_spaces(task, env.observation_space, env.action_space)
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        spaces = get_spaces(env)
        self.own_action_space: Any = spaces[1]
        """The space before choices were made to start at 0."""
        texts = "dropped_texts"
        self.dropped_texts: list[str] = env.get_wrapper_attr(texts) if env.has_wrapper_attr(texts) else []
        # The limit of an Atari game is not in gymnasium's spec.
        self.time_limit: int | None = MAX_STEPS_PER_GAME if task.atari else env.spec and env.spec.max_episode_steps
        # Shimmy's render_fps is wrong: it is 1,000 times the time step of the dm_control task.
        is_dm_control = task.id.startswith("dm_control/")
        self.render_fps = round(1 / env.unwrapped.dt) if is_dm_control else int(env.metadata.get("render_fps") or 30)
        env.close()
        require_players(task, 1)
        self.num_envs, self._id = task.num_envs, task.id
        self._info_keys = task.info
        self.episode_info: dict[str, np.ndarray] = {}
        self._is_atari = task.atari is not None
        self._reward_clip = task.atari is not None and task.atari.reward_clip
        build = functools.partial(_make_env, task, render_mode, self.masks_actions)
        self._envs = GymVectorEnv(task.id, build, task.num_envs, vectorization, spaces)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        obs, info = self._envs.reset(seeds)
        return PolicyInput(obs, action_mask=self._action_mask(info, np.zeros(self.num_envs, bool)))

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        obs, reward, terminated, truncated, info = self._envs.step(actions.astype(self.action_space.dtype, copy=False))
        self.episode_info = {name: _info_numbers(info, name) for name in self._info_keys if name in info}
        raw_reward = to_float32(reward)
        learnt = np.sign(raw_reward) if self._reward_clip else raw_reward
        life_lost = info.get("life_lost", np.False_) if self._is_atari else np.False_
        episode_over = (terminated & ~life_lost) | truncated
        action_mask = self._action_mask(info, terminated | truncated)
        return EnvStep(obs, learnt, terminated, truncated, episode_over, raw_reward, action_mask=action_mask)

    def _action_mask(self, info: dict[str, Any], done: np.ndarray) -> np.ndarray | None:
        """See `PolicyInput.action_mask`. In done environments every choice is legal, since the next step ignores it."""
        if not self.masks_actions:
            if MASK in info:
                raise RunError(f"{self._id}: {missing_mask_message('info')}")
            return None
        action_mask = np.ones((self.num_envs, int(get_num_choices(self.action_space).sum())), bool)
        for i in np.flatnonzero(~done):
            (mask,) = info[MASK][i]
            try:
                action_mask[i] = flatten_action_mask(mask, self.action_space)
            except ValueError as error:
                raise RunError(f"environment {i} of {self._id}: {error}") from error
        return action_mask

    def render(self) -> np.ndarray:
        """A frame `[H, W, 3]` uint8 of the first environment; only with `render_mode="rgb_array"`."""
        return self._envs.render()

    def close(self) -> None:
        """See `VectorEnv.close`."""
        self._envs.close()


def _info_numbers(info: dict[str, Any], name: str) -> np.ndarray:
    """The entries `info[name]` of N environments, `[N]` float64; NaN where an environment has none.

    Gymnasium marks the environments that have it in `info["_" + name]`. Raises `RunError` if the entries are not
    numbers.
    """
    try:
        numbers = np.asarray(info[name], np.float64)
        if numbers.ndim != 1:
            raise ValueError(numbers.shape)
        return np.where(info[f"_{name}"], numbers, np.nan)
    except (TypeError, ValueError) as error:
        raise RunError(f"info[{name!r}] is not one number: leave it out of env.info") from error


def _make_env(task: Task, render_mode: str | None = None, masks_actions: bool = False) -> Any:
    """One environment as it is trained; `masks_actions` says that it is known to give masks."""
    return _prepare_env(task, _make_task_env(task, render_mode), masks_actions)


def _make_task_env(task: Task, render_mode: str | None, checked: bool = True) -> Any:
    """The environment that the task names, in the task's wrappers; if `checked`, with gymnasium's passive checker."""
    import gymnasium

    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # no sound
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # old versions of tasks, such as v4, are used on purpose
        _register(task)
        if task.atari is None:
            drawn: dict[str, Any] = {"render_mode": render_mode} if render_mode else {}  # some constructors lack it
            if not checked:
                drawn["disable_env_checker"] = True
            env = gymnasium.make(task.id, **{**task.kwargs, **drawn})
            if render_mode:
                _follow_robot(env)
            return _apply_wrappers(task, env)
        if not str(gymnasium.spec(task.id).entry_point).startswith("ale_py"):
            raise ConfigError(f"{task.id} is not an Atari game: add env.atari=null")
        from ppo_bench.envs.atari import make_atari
        from ppo_bench.envs.atari_baselines import make_atari_baselines

        make = make_atari_baselines if task.atari.baselines else make_atari
        rules = task.atari
        options: dict[str, Any] = {"render_mode": render_mode, "kwargs": task.kwargs, "frames": rules.frames}
        env = make(task.id, rules.episodic_life, repeat_action_probability=rules.repeat_action_probability, **options)
        return _apply_wrappers(task, env)


def _prepare_env(task: Task, env: Any, masks_actions: bool = False) -> Any:
    """`env` as the vector of environments takes it: masks in `info`, choices from 0, one array as observation."""
    env = _with_float_info(task, add_action_masks(env, masks_actions))
    return env if task.atari else _flatten_observations(_with_zero_based_actions(env))


def _with_float_info(task: Task, env: Any) -> Any:
    """`env` whose numbers in `info` are floats, if `task.info` names others than those that are 0 or 1 anyway."""
    if not set(task.info) - DEFAULT_INFO_KEYS:
        return env
    from ppo_bench.envs.float_info import FloatInfo

    return FloatInfo(env, task.info)


def _follow_robot(env: Any) -> None:
    """Draws a MuJoCo robot by its model's camera `track`, which moves along; gymnasium 1.4 leaves the robot behind."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or renderer.camera_id != -1:
        return
    import mujoco

    renderer.camera_id = mujoco.mj_name2id(env.unwrapped.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")


def _register(task: Task) -> None:
    """Register Atari games and dm_control tasks with gymnasium; their packages do not do so when they are installed."""
    import gymnasium

    if task.atari or task.id.startswith("ALE/"):
        require("ale_py", "atari", f"{task.id} on backend=gymnasium")
        require("cv2", "atari", f"{task.id} on backend=gymnasium")
    if task.id.startswith("dm_control/"):
        require("shimmy", "dm-control", f"{task.id} on backend=gymnasium")
        # dm_control sets up rendering when it is imported, unless MUJOCO_GL says otherwise.
        os.environ.setdefault("MUJOCO_GL", "disable")
        logging.getLogger("absl").setLevel(logging.ERROR)  # hides deprecation warnings about dm_control's own models
        import shimmy

        gymnasium.register_envs(shimmy)
    elif importlib.util.find_spec("ale_py") and (task.atari or task.id not in gymnasium.registry):
        import ale_py

        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)  # no banner for every environment
        gymnasium.register_envs(ale_py)


def _apply_wrappers(task: Task, env: Any) -> Any:
    """`env` inside the wrappers of `task.wrappers`. Raises `ConfigError` if one cannot be built."""
    import gymnasium
    from hydra.utils import instantiate

    for wrapper in task.wrappers:
        if not isinstance(wrapper, Mapping) or "_target_" not in wrapper:
            raise ConfigError(
                f"env.wrappers: {wrapper} names no class that can be imported: "
                "write {_target_: package.Class, key: value}"
            )
        arguments = dict(wrapper)
        cls = import_class("env.wrappers: _target_", arguments.pop("_target_"), gymnasium.Wrapper)
        if own := NORMALIZERS.get(cls.__name__):
            raise ConfigError(f"env.wrappers: {cls.__name__} has statistics that checkpoints lack: use {own}=true")
        try:
            env = cls(env, **instantiate(arguments, _convert_="all"))
        except Exception as error:  # building whatever was named
            raise ConfigError(f"env.wrappers: {dict(wrapper)} cannot be built: {one_line(error)}") from error
    return env


def _with_zero_based_actions(env: Any) -> Any:
    """`env` with discrete actions that start at 0."""
    from gymnasium import spaces, wrappers

    space, first = env.action_space, first_action(env.action_space)
    if not np.any(first):
        return env
    zero_based = spaces.Discrete(space.n) if isinstance(space, spaces.Discrete) else spaces.MultiDiscrete(space.nvec)
    wrapped: Any = wrappers.TransformAction(env, lambda action: action + first, zero_based)
    wrapped.own_action_space = space
    return wrapped


def first_action(space: Any) -> Any:
    """The lowest choice of each component of a space of choices; 0 for other spaces."""
    from gymnasium import spaces

    return space.start if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else 0


def _flatten_observations(env: Any) -> Any:
    """`env` with flattened observations: dictionaries, tuples and discrete values (one-hot) become one vector, without
    texts."""
    from gymnasium import spaces, wrappers

    original = env.observation_space
    space, select = drop_texts(original)
    if isinstance(space, spaces.Box) or not can_flatten(space):
        return env
    if space is not original:
        env = wrappers.TransformObservation(env, select, space)
        env.dropped_texts = [name for name, part in leaf_spaces_by_name(original).items() if is_text(part)]
    scaled, scale = scale_bytes(space)
    flat: Any = wrappers.FlattenObservation(wrappers.TransformObservation(env, scale, scaled))
    flat.own_observation_space = space
    flat.observation_space = FlattenedBox(flat.observation_space, leaf_spaces_by_name(scaled), RowFlattener(original))
    return flat
