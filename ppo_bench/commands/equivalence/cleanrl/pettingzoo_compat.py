"""Interfaces of ppo_pettingzoo_ma_atari.py: SuperSuit's vectors of games, and PettingZoo's ROMs."""

from __future__ import annotations

import importlib
import sys
import types
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import supersuit

from ppo_bench.commands.equivalence.cleanrl.script import Script


def install(script: Script) -> None:
    """Put vectors of games with the old values and the supplied seeds in place."""
    _install_strtobool(script)
    own_concat: Any = supersuit.concat_vec_envs_v1
    supersuit.concat_vec_envs_v1 = lambda env, count, num_cpus=0, base_class="gym": Games(
        script, own_concat(env, count, num_cpus, "gymnasium")
    )
    gymnasium.wrappers.RecordEpisodeStatistics = lambda env: env  # type: ignore[misc,assignment]
    own_import = importlib.import_module

    def import_module(name: str, package: str | None = None) -> Any:
        found = own_import(name, package)
        return Game(script, found) if name.startswith("pettingzoo.atari.") else found

    importlib.import_module = import_module


def _install_strtobool(script: Script) -> None:
    """Put a module `distutils.util` in place."""

    def strtobool(text: str) -> bool:
        script.used.add("strtobool")
        return text == "True"

    util: Any = types.ModuleType("distutils.util")
    util.strtobool = strtobool
    sys.modules |= {"distutils": types.ModuleType("distutils"), "distutils.util": util}


class Game:
    """A module of PettingZoo's, whose game finds its ROM."""

    def __init__(self, script: Script, module: Any) -> None:
        self._script, self._module = script, module

    def parallel_env(self, **options: Any) -> Any:
        """The game."""
        self._script.used.add("roms")
        return self._module.parallel_env(auto_rom_install_path=str(Path(ale_py.__file__).parent / "roms"), **options)


class Games:
    """SuperSuit's vector of games, each with a row for either player."""

    def __init__(self, script: Script, env: Any) -> None:
        script.used.update(("supersuit", "environment seeds"))
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
            raise SystemExit("a game has ended, which SuperSuit resets within the step: compare fewer iterations")
        self._script.note_step(done)
        return self._marked(obs), rewards, done, infos

    def _marked(self, obs: np.ndarray) -> np.ndarray:
        """`obs [N, 84, 84, 6]`, whose two planes that mark the player are 1 and not 255."""
        obs = obs.copy()
        obs[..., 4:] //= np.maximum(obs[..., 4:].max(), 1)
        return obs
