"""What the bounds of gymnasium spaces mean: bounds of actions, and observations of bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError, one_line
from ppo_bench.mathematics.arrays import Array


class ActionBounds(NamedTuple):
    """Lower and upper bounds `[A]` of an environment's actions.

    If `rescaled`, the policy's actions lie between -1 and 1 and are stretched to the bounds.
    """

    low: np.ndarray
    high: np.ndarray
    rescaled: bool

    def to_env_actions(self, xp: Any, actions: Array) -> Array:
        """The environment's actions `[N, A]`: the policy's `actions [N, A]`, clipped or stretched to the bounds."""
        if not self.rescaled:
            return xp.clip(actions, self.low, self.high)
        stretched = self.low + (xp.clip(actions, -1.0, 1.0) + 1.0) * (0.5 * self.high - 0.5 * self.low)
        return xp.clip(stretched, self.low, self.high)  # which rounding may exceed


def action_bounds(space: Any, rescaled: bool) -> ActionBounds | None:
    """The action bounds of a gymnasium space; None if its actions are discrete.

    Raises `ConfigError` if `rescaled` is true and the space has no finite bounds.
    """
    from gymnasium import spaces

    bounded = isinstance(space, spaces.Box)
    if rescaled and not (bounded and np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        text = one_line(space)
        raise ConfigError(f"env.rescale_actions=true is for actions of floats with bounds, not {text}: use false")
    return ActionBounds(space.low, space.high, rescaled) if bounded else None


def is_byte_space(space: Any) -> bool:
    """Whether the observations of a gymnasium space are bytes up to 255, which networks divide by 255.

    Bytes with lower bounds, such as the counts of an inventory, are numbers like others.
    """
    return space.dtype == np.uint8 and bool(np.max(space.high, initial=0) == 255)
