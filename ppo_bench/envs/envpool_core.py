"""A step of an EnvPool pool without the dictionaries that EnvPool's wrapper makes of it.

Making them takes longer than a step of CartPole (docs/performance.md). What goes in and comes out are the arrays of the
pool's core, by EnvPool's own names for them; they are what `pool.step` returns, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

OF_ATARI = ("lives", "terminated", "reward")
"""What `info` has to say of it; see `as_step` in envpool.py."""


class Core:
    """The core of `pool`, as EnvPool 1.2 has it."""

    def __init__(self, pool: Any) -> None:
        self._send, self._recv = pool._send, pool._recv
        self._action_dtype = pool.spec.action_array_spec["action"].dtype
        self._ids = pool.all_env_ids
        keys = list(pool._state_keys)
        self._reward, self._done, self._trunc = (keys.index(name) for name in ("reward", "done", "trunc"))
        self._info = {name: keys.index(f"info:{name}") for name in OF_ATARI if f"info:{name}" in keys}
        parts = {key.removeprefix("obs:"): i for i, key in enumerate(keys) if key == "obs" or key.startswith("obs:")}
        self._obs: int | dict[str, int] = next(iter(parts.values())) if len(parts) == 1 else parts

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Observations, rewards, terminated, truncated and what `info` has of `OF_ATARI`."""
        self._send([self._ids, self._ids, actions.astype(self._action_dtype, order="C")])
        arrays = self._recv()
        obs = arrays[self._obs] if isinstance(self._obs, int) else {k: arrays[i] for k, i in self._obs.items()}
        truncated = arrays[self._trunc]
        info = {name: arrays[i] for name, i in self._info.items()}
        return obs, arrays[self._reward], arrays[self._done] & ~truncated, truncated, info
