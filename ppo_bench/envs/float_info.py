"""Numbers in `info` that runs record with each episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium


class FloatInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that turns numbers in `info` into floats.

    Gymnasium joins the entries of N environments in an array of the type that the first one has, and an int beside it
    would round the others. The entries of a reset are left out: an episode records those of its last step.
    """

    def __init__(self, env: Any, names: Sequence[str]) -> None:
        super().__init__(env)
        self._names = names

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """See `gymnasium.Env.reset`."""
        obs, info = self.env.reset(seed=seed, options=options)
        return obs, {name: value for name, value in info.items() if name not in self._names}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """See `gymnasium.Env.step`."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, info | {k: _float(info[k]) for k in self._names if k in info}


def _float(value: Any) -> Any:
    """`value` as a float; unchanged if it is not a number, which the vector of environments says."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return value
