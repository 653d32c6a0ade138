"""A trial of a gymnasium environment in its wrappers, by one reset and one step, which reports faults before a run
starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, RunError, exit_as_error, one_line
from ppo_bench.envs.action_masks import find_action_mask, flatten_action_mask
from ppo_bench.envs.float_range import is_in_range, range_error
from ppo_bench.envs.spaces import get_num_choices


def validate_env(name: str, env: Any) -> None:
    """Raise `ConfigError` if `env`, with all its wrappers, violates gymnasium's API or its own observation space.

    Raises `RunError` if it calls `sys.exit`. A fault that the environment has without wrappers is reported first.
    `name` is its name in messages.
    """
    try:
        _validate_env(f"{name} in its wrappers" if env.unwrapped is not env else name, env)
    except (ConfigError, RunError):
        _validate_env(name, env.unwrapped)
        raise


def _validate_env(name: str, env: Any) -> None:
    result = _call(name, "reset", lambda: env.reset(seed=0))
    match result:
        case (obs, dict() as info):
            _require_observation(name, "reset", env.observation_space, obs)
        case tuple():
            raise ConfigError(f"{name}: reset gives {_kinds(result)}, and not (observation, info) with info a dict")
        case _:
            raise ConfigError(f"{name}: reset gives {_kind(result)} alone, and not (observation, info)")
    env.action_space.seed(0)
    try:
        action = _action(env, obs, info)
    except ValueError as error:
        raise ConfigError(f"{name}: {one_line(error)}") from error
    result = _call(name, "step", lambda: env.step(action))
    if not isinstance(result, tuple) or len(result) != 5:
        count = len(result) if isinstance(result, tuple) else 1
        raise ConfigError(
            f"{name}: step gives {count} values, and not the five of gymnasium: (observation, reward, terminated, "
            "truncated, info)" + ("; four are those of gym before 0.26" if count == 4 else "")
        )
    obs, reward, terminated, truncated, info = result
    _require_observation(name, "step", env.observation_space, obs)
    if not isinstance(info, dict):
        raise ConfigError(f"{name}: step gives {_kind(info)} as info, and not a dict")
    for flag, value in (("terminated", terminated), ("truncated", truncated)):
        if np.ndim(value) != 0 or np.asarray(value).dtype.kind not in "biu":
            raise ConfigError(f"{name}: step gives {flag}={value!r}, and not True or False")
    if np.ndim(reward) != 0:
        raise ConfigError(f"{name}: step gives a reward of shape {np.shape(reward)}, and not a number")
    if np.asarray(reward).dtype.kind not in "biuf":
        raise ConfigError(f"{name}: step gives a reward of {reward!r}, and not a number")
    if not is_in_range(np.asarray(reward, np.float64)):
        raise ConfigError(f"{name}: step gives a reward of {reward}, which {range_error(reward)}")


def _call(name: str, method: str, call: Callable[[], Any]) -> Any:
    with exit_as_error(f"{name}: {method}"):
        try:
            return call()
        except Exception as error:  # whatever the environment's own code raises
            said = one_line(error)
            raise ConfigError(
                f"{name}: {method} raises {type(error).__name__}" + (f": {said}" if said else "")
            ) from error


def _action(env: Any, obs: Any, info: dict[str, Any]) -> Any:
    """A random action of `env`, or the first legal one if it gives a mask of legal choices."""
    from gymnasium import spaces

    space, mask = env.action_space, find_action_mask(env, obs, info)
    if mask is None:
        return space.sample()
    action_mask = flatten_action_mask(mask, space)
    first = getattr(space, "start", 0)
    if isinstance(space, spaces.Discrete):
        return first + action_mask.argmax()
    return first + np.array([part.argmax() for part in np.split(action_mask, np.cumsum(get_num_choices(space))[:-1])])


def _require_observation(name: str, method: str, space: Any, obs: Any, part: str = "") -> None:
    """Raise `ConfigError` if `obs`, or a part of it, has another shape or dtype than `space` or is not finite.

    `part` is the path of a part within the observation, such as `['camera']`. Parts are converted to the dtype of their
    space, as gymnasium's `flatten` does, if they are of the same kind.
    """
    from gymnasium import spaces

    gives = f"{name}: {method} gives {'obs' + part if part else 'an observation'}"
    if isinstance(space, spaces.Dict | spaces.Tuple):
        kind: Any = Mapping if isinstance(space, spaces.Dict) else tuple
        if not isinstance(obs, kind):
            raise ConfigError(f"{gives} that is {_kind(obs)}, and not a {'dict' if kind is Mapping else 'tuple'}")
        both: tuple[Any, Any] = space.spaces, obs
        inner, parts = (dict(x if kind is Mapping else enumerate(x)) for x in both)
        for key in inner:
            if key not in parts:
                raise ConfigError(f"{gives} without [{key!r}], which its observation_space has")
            _require_observation(name, method, inner[key], parts[key], f"{part}[{key!r}]")
    elif isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        if not space.contains(obs):
            raise ConfigError(f"{gives} of {one_line(obs)}, which is not in its observation_space {one_line(space)}")
    elif isinstance(space, spaces.Box):
        if not part and not hasattr(obs, "__array__"):
            raise ConfigError(f"{name}: {method} gives {_kind(obs)} as observation, and not an array of {space.dtype}")
        obs = np.asarray(obs)
        castable = np.can_cast(obs.dtype, space.dtype, "same_kind") if part else obs.dtype == space.dtype
        if obs.shape != space.shape or not castable:
            raise ConfigError(
                f"{gives} of shape {obs.shape} and type {obs.dtype}, and its observation_space says {space.shape} and "
                f"{space.dtype}"
            )
        if obs.dtype.kind == "f" and not is_in_range(obs):
            kind = "within the range of float32" if np.isfinite(obs).all() else "of finite numbers"
            raise ConfigError(f"{gives} that is not {kind}")


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _kinds(values: tuple[Any, ...]) -> str:
    return f"({', '.join(_kind(value) for value in values)})"
