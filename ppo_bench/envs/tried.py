"""A trial of a gymnasium environment with one reset and one step, which reports its faults before a run starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.envs.action_masks import legal_choices, mask_of
from ppo_bench.envs.base import choices_of


def require_sound(name: str, env: Any) -> None:
    """Raise `ConfigError` if `env` violates gymnasium's API, or if its observations do not fit its space.

    `name` is its name in messages.
    """
    given = _called(name, "reset", lambda: env.reset(seed=0))
    match given:
        case (obs, dict() as info):
            _require_observation(name, "reset", env.observation_space, obs)
        case tuple():
            raise ConfigError(f"{name}: reset gives {_kinds(given)}, and not (observation, info) with info a dict")
        case _:
            raise ConfigError(f"{name}: reset gives {_kind(given)} alone, and not (observation, info)")
    env.action_space.seed(0)
    try:
        action = _action(env, obs, info)
    except ValueError as error:
        raise ConfigError(f"{name}: {one_line(error)}") from error
    given = _called(name, "step", lambda: env.step(action))
    if not isinstance(given, tuple) or len(given) != 5:
        count = len(given) if isinstance(given, tuple) else 1
        raise ConfigError(
            f"{name}: step gives {count} values, and not the five of gymnasium: (observation, reward, terminated, "
            "truncated, info)" + ("; four are those of gym before 0.26" if count == 4 else "")
        )
    obs, reward, *_ = given
    _require_observation(name, "step", env.observation_space, obs)
    if np.ndim(reward) != 0:
        raise ConfigError(f"{name}: step gives a reward of shape {np.shape(reward)}, and not a number")
    if np.asarray(reward).dtype.kind not in "biuf":
        raise ConfigError(f"{name}: step gives a reward of {reward!r}, and not a number")
    if not np.isfinite(reward):
        raise ConfigError(f"{name}: step gives a reward of {reward}, which is no finite number")


def _called(name: str, method: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # whatever the environment's own code raises
        said = one_line(error)
        raise ConfigError(f"{name}: {method} raises {type(error).__name__}" + (f": {said}" if said else "")) from error


def _action(env: Any, obs: Any, info: dict[str, Any]) -> Any:
    """A random action of `env`, or the first legal one if it gives a mask of legal choices."""
    from gymnasium import spaces

    space, mask = env.action_space, mask_of(env, obs, info)
    if mask is None or isinstance(space, spaces.Box):
        return space.sample()
    legal = legal_choices(mask, space)
    first = getattr(space, "start", 0)
    if isinstance(space, spaces.Discrete):
        return first + legal.argmax()
    return first + np.array([part.argmax() for part in np.split(legal, np.cumsum(choices_of(space))[:-1])])


def _require_observation(name: str, method: str, space: Any, obs: Any) -> None:
    """Raise `ConfigError` if `space` is a `Box` and `obs` has another shape or dtype or is not finite."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Box):
        return
    if not isinstance(obs, np.ndarray | np.generic):
        raise ConfigError(f"{name}: {method} gives {_kind(obs)} as observation, and not an array of {space.dtype}")
    if obs.shape != space.shape or obs.dtype != space.dtype:
        raise ConfigError(
            f"{name}: {method} gives an observation of shape {obs.shape} and type {obs.dtype}, and its "
            f"observation_space says {space.shape} and {space.dtype}"
        )
    if not np.isfinite(obs).all():
        raise ConfigError(f"{name}: {method} gives an observation that is not of finite numbers")


def _kind(value: Any) -> str:
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"


def _kinds(values: tuple[Any, ...]) -> str:
    return f"({', '.join(_kind(value) for value in values)})"
