"""The gymnasium backend: any registered environment, all in this process or each in a process of its own."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import wrappers
from gymnasium.envs.registration import EnvSpec
from hydra.utils import instantiate

from ppo_bench.common.errors import ConfigError, RunError, as_config_error, require
from ppo_bench.common.values import NOT_HASHED
from ppo_bench.envs.action_masks import MASK, ActionMasks, find_action_mask, flatten_action_mask
from ppo_bench.envs.base import MAX_STEPS_PER_GAME, EnvStep, PolicyInput, Task
from ppo_bench.envs.observation_flattening import observation_flattener
from ppo_bench.envs.spaces import get_num_choices, require_supported_spaces
from ppo_bench.envs.turns import require_players
from ppo_bench.envs.vectorized import VECTORIZATIONS, GymVectorEnv

NORMALIZERS = {"NormalizeObservation": "ppo.norm_obs", "NormalizeReward": "ppo.norm_reward"}
"""Wrappers of gymnasium with running statistics, which a resumed run would begin anew, and keys that do the same."""


@dataclass(frozen=True)
class GymnasiumBackend:
    """`backend=gymnasium`; conf/backend/gymnasium.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    name: str
    vectorization: str = field(metadata=NOT_HASHED | VECTORIZATIONS)

    def make(self, task: Task) -> GymnasiumEnv:
        """The environments of `task`."""
        return GymnasiumEnv(task, self.vectorization)


class GymnasiumEnv:
    """A `VectorEnv` over gymnasium's `SyncVectorEnv` or `AsyncVectorEnv`."""

    def __init__(self, task: Task, vectorization: str, render_mode: str | None = None) -> None:
        require_players(task, 1)
        env, self.masks_actions = _try_env(task, render_mode)
        self.observation_space: Any = env.observation_space
        self.action_space: Any = env.action_space
        # The limit of an Atari game is not in gymnasium's spec.
        self.time_limit: int | None = MAX_STEPS_PER_GAME if task.atari else env.spec and env.spec.max_episode_steps
        # Shimmy's render_fps is wrong: it is 1,000 times the time step of the dm_control task.
        is_dm_control = task.id.startswith("dm_control/")
        self.render_fps = round(1 / env.unwrapped.dt) if is_dm_control else int(env.metadata.get("render_fps") or 30)
        env.close()
        self.num_envs, self._id = task.num_envs, task.id
        self._info_keys = task.info
        self.episode_info: dict[str, np.ndarray] = {}
        self._is_atari = task.atari is not None
        self._reward_clip = task.atari is not None and task.atari.reward_clip
        build = functools.partial(_make_env, task, render_mode, self.masks_actions)
        self._envs = GymVectorEnv(task.id, build, task.num_envs, vectorization)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        obs, info = self._envs.reset(seeds)
        return PolicyInput(obs, action_mask=self._action_mask(info, np.zeros(self.num_envs, bool)))

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        obs, reward, terminated, truncated, info = self._envs.step(actions.astype(self.action_space.dtype, copy=False))
        # Gymnasium marks the environments that have an entry in `info["_" + name]`.
        self.episode_info = {k: np.where(info[f"_{k}"], info[k], np.nan) for k in self._info_keys if k in info}
        if reward.ndim > 1:
            raise RunError(f"{self._id}: step returns a reward of shape {reward.shape[1:]}: return one number")
        with np.errstate(over="ignore"):  # the trainer names a reward that is not finite
            raw_reward = reward.astype(np.float32)
        learnt = np.sign(raw_reward) if self._reward_clip else raw_reward
        life_lost = info.get("life_lost", np.False_) if self._is_atari else np.False_
        episode_over = (terminated & ~life_lost) | truncated
        action_mask = self._action_mask(info, terminated | truncated)
        return EnvStep(obs, learnt, terminated, truncated, episode_over, raw_reward, action_mask=action_mask)

    def _action_mask(self, info: dict[str, Any], done: np.ndarray) -> np.ndarray | None:
        """See `PolicyInput.action_mask`. In done environments every choice is legal, since the next step ignores it."""
        if not self.masks_actions:
            if MASK in info:
                raise RunError(f"{self._id}: info[{MASK!r}] of a step is missing from reset: return it from reset too")
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


def _try_env(task: Task, render_mode: str | None) -> tuple[Any, bool]:
    """An environment with all wrappers of the training, and whether it has masks of legal choices.

    It is made in this process, where an error has a readable cause; worker processes hide it. Raises `ConfigError` if
    it cannot be made or reset, and `RunError` if it calls `sys.exit`.
    """
    with as_config_error(f"{task.id} on backend=gymnasium"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that the training shows
        env = _make_task_env(task, render_mode)
        obs, info = env.reset(seed=0)
        mask = find_action_mask(env, obs, info)
        if mask is not None:
            flatten_action_mask(mask, env.action_space)
        env = _prepare_env(task, env, mask is not None)
        require_supported_spaces(task, env.observation_space, env.action_space)
        shape, expected = np.shape(env.reset(seed=0)[0]), env.observation_space.shape
    if shape != expected:
        raise ConfigError(f"{task.id}: reset returns an observation of shape {shape}, its space has {expected}")
    return env, mask is not None


def _make_env(task: Task, render_mode: str | None, masks_actions: bool) -> Any:
    """An environment with all wrappers of the training; `masks_actions` says that it gives masks of legal choices."""
    return _prepare_env(task, _make_task_env(task, render_mode), masks_actions)


def _make_task_env(task: Task, render_mode: str | None) -> Any:
    """The environment that the task names, in the task's wrappers."""
    os.environ.setdefault("SDL_AUDIODRIVER", "dummy")  # no sound
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # old versions of tasks, such as v4, are used on purpose
        _register(task)
        if task.atari is None:
            drawn = {"render_mode": render_mode} if render_mode else {}  # some constructors lack it
            env = gymnasium.make(_find_spec(task.id), **{**task.kwargs, **drawn})
            if render_mode:
                _follow_robot(env)
            return _apply_wrappers(task, env)
        if not str(gymnasium.spec(task.id).entry_point).startswith("ale_py"):
            raise ConfigError(f"{task.id} is not an Atari game: add env.atari=null")
        from ppo_bench.envs.atari import make_atari
        from ppo_bench.envs.atari_baselines import make_atari_baselines

        make = make_atari_baselines if task.atari.baselines else make_atari
        return _apply_wrappers(task, make(task.id, task.atari, render_mode, task.kwargs))


def _prepare_env(task: Task, env: Any, masks_actions: bool) -> Any:
    """`env` as the vector of environments takes it: masks in `info`, of other entries only those that are read, one
    array as observation."""
    if masks_actions:
        env = ActionMasks(env)
    env = SelectInfo(env, task.info)
    flattener = observation_flattener(env.observation_space)
    return wrappers.TransformObservation(env, flattener.flatten_row, flattener.space) if flattener else env


class SelectInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that leaves only those entries of `info` that are read, numbers among them as floats.

    Gymnasium joins the entries of N environments in an array of the type and shape that the first one has. An int would
    round the others, and an entry of another shape would be an error. Numbers of a reset are left out: an episode
    records those of its last step.
    """

    def __init__(self, env: Any, names: Sequence[str]) -> None:
        super().__init__(env)
        self._names = names

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, {MASK: info[MASK]} if MASK in info else {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        if not info:  # the usual case, in the least time
            return obs, reward, terminated, truncated, info
        selected = {name: info[name] for name in (MASK, "life_lost") if name in info}
        for name in self._names:
            if (value := info.get(name)) is not None:
                array = np.asarray(value)
                if array.size != 1 or array.dtype.kind not in "biuf":
                    raise RunError(f"info[{name!r}] is not one number: leave it out of env.info")
                selected[name] = float(array.item())
        return obs, reward, terminated, truncated, selected


def _follow_robot(env: Any) -> None:
    """Draws a MuJoCo robot by its model's camera `track`, which moves along; gymnasium 1.4 leaves the robot behind."""
    renderer = getattr(env.unwrapped, "mujoco_renderer", None)
    if renderer is None or renderer.camera_id != -1:
        return
    import mujoco

    renderer.camera_id = mujoco.mj_name2id(env.unwrapped.model, mujoco.mjtObj.mjOBJ_CAMERA, "track")


def _register(task: Task) -> None:
    """Register Atari games and dm_control tasks with gymnasium; their packages do not do so when they are installed."""
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


def _find_spec(env_id: str) -> str | EnvSpec:
    """What gymnasium makes for an id. In `module:name`, the name is a registered id, or a class or function of the
    module."""
    module, _, name = env_id.partition(":")
    if name:
        found = getattr(importlib.import_module(module), name, None)  # the import may register ids
        if callable(found) and name not in gymnasium.registry:
            return EnvSpec(name, entry_point=env_id)
    return env_id


def _apply_wrappers(task: Task, env: Any) -> Any:
    """`env` inside the wrappers of `task.wrappers`. Raises `ConfigError` if one cannot be built."""
    for wrapper in task.wrappers:
        env = instantiate(wrapper, env, _convert_="all")
        if not isinstance(env, gymnasium.Wrapper):
            raise ConfigError(f"env.wrappers: {wrapper} is no gymnasium.Wrapper: write {{_target_: module.Class, ...}}")
        if own := NORMALIZERS.get(type(env).__name__):
            raise ConfigError(
                f"env.wrappers: {type(env).__name__} has statistics that checkpoints lack: use {own}=true"
            )
    return env
