"""Interfaces of ppo_pettingzoo_ma_atari.py: SuperSuit's vectors of games, and PettingZoo's ROMs."""

from __future__ import annotations

import importlib
import types
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import supersuit

from ppo_bench.commands.equivalence.cleanrl.script import Script, install_module, patch
from ppo_bench.common.errors import ConfigError


def install(script: Script) -> None:
    """Put vectors of games with the old values and the supplied seeds in place."""
    install_module("distutils")
    install_module("distutils.util", strtobool=lambda text: text == "True")  # Python 3.12 no longer has it
    vars(gymnasium.wrappers)["RecordEpisodeStatistics"] = lambda env: env

    @patch(supersuit, "concat_vec_envs_v1")
    def concat(original: Any, env: Any, count: int, num_cpus: int = 0, base_class: str = "gym") -> Any:
        return Games(script, original(env, count, num_cpus, "gymnasium"))

    @patch(importlib, "import_module")
    def import_module(original: Any, name: str, package: str | None = None) -> Any:
        module = original(name, package)
        if not name.startswith("pettingzoo.atari."):
            return module
        roms = str(Path(ale_py.__file__).parent / "roms")
        return types.SimpleNamespace(
            parallel_env=lambda **options: module.parallel_env(auto_rom_install_path=roms, **options)
        )


class Games:
    """SuperSuit's vector of games, each with a row for either player."""

    def __init__(self, script: Script, env: Any) -> None:
        self._script, self._env = script, env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_env"], name)

    def reset(self) -> np.ndarray:
        """The first observations."""
        seeds = self._script.env_seeds[::2]  # a game is reset with its first player's
        games = zip(self._env.vec_envs, seeds, strict=True)
        return self._marked(np.concatenate([game.reset(seed=seed)[0] for game, seed in games]))

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, Any]:
        """Observations, rewards, flags and infos."""
        obs, rewards, terminated, truncated, infos = self._env.step(actions)
        done = terminated | truncated
        if done.any():
            raise ConfigError("a game has ended, which SuperSuit resets within the step: compare fewer iterations")
        self._script.note_step(done)
        return self._marked(obs), rewards, done, infos

    def _marked(self, obs: np.ndarray) -> np.ndarray:
        """`obs [N, 84, 84, 6]`, whose two planes that mark the player are 1 and not 255."""
        obs = obs.copy()
        obs[..., 4:] //= np.maximum(obs[..., 4:].max(), 1)
        return obs
