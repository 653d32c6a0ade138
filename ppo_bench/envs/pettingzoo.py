"""The PettingZoo backend: games whose players act simultaneously or in turn, each in a row of its own
(ppo_bench/envs/turns.py)."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.errors import ConfigError, as_config_error, nearest
from ppo_bench.common.values import NOT_HASHED
from ppo_bench.envs.atari_players import AtariPlayers, require_atari, roms
from ppo_bench.envs.base import EnvStep, PolicyInput, Task
from ppo_bench.envs.pettingzoo_game import Game
from ppo_bench.envs.spaces import require_supported_spaces
from ppo_bench.envs.turns import get_num_games, require_players
from ppo_bench.envs.vectorized import VECTORIZATIONS, GymVectorEnv


@dataclass(frozen=True)
class PettingZooBackend:
    """`backend=pettingzoo`; conf/backend/pettingzoo.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    package: ClassVar[str] = "pettingzoo"
    name: str
    vectorization: str = field(metadata=NOT_HASHED | VECTORIZATIONS)

    def make(self, task: Task) -> PettingZooEnv:
        """The environments of `task`."""
        return PettingZooEnv(task, self.vectorization)


class PettingZooEnv:
    """A `VectorEnv` of G games with P players, in G P rows."""

    def __init__(self, task: Task, vectorization: str) -> None:
        task.require_no_wrappers("pettingzoo")
        build = functools.partial(_make_game, task)
        game = build()
        self.players = len(game.agents)
        require_players(task, self.players)
        require_supported_spaces(task, game.player_observation_space, game.player_action_space)
        game.close()
        self.num_envs, games = task.num_envs, get_num_games(task)
        self.observation_space: Any = game.player_observation_space
        self.action_space: Any = game.player_action_space
        self.masks_actions = game.masks_actions
        self.render_fps = game.render_fps
        self._takes_turns = game.takes_turns
        self._reward_clip = task.atari is not None and task.atari.reward_clip
        self._envs = GymVectorEnv(task.id, build, games, vectorization)

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        observation, _ = self._envs.reset(seeds[:: self.players])
        return self._policy_input(observation)

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        own = actions.astype(self.action_space.dtype, copy=False)
        by_game = own.reshape(-1, self.players, *actions.shape[1:])
        observation, _, terminated, truncated, _ = self._envs.step(by_game)
        policy_input, raw_reward = self._policy_input(observation), self._rows(observation["rewards"])
        reward = np.sign(raw_reward) if self._reward_clip else raw_reward
        terminated, truncated = (np.repeat(flags, self.players) for flags in (terminated, truncated))
        over = terminated | truncated
        return EnvStep(
            policy_input.obs,
            reward,
            terminated,
            truncated,
            over,
            raw_reward,
            policy_input.policy_mask,
            policy_input.action_mask,
        )

    def _policy_input(self, observation: Mapping[str, np.ndarray]) -> PolicyInput:
        policy_mask = self._rows(observation["policy_mask"]).astype(bool) if self._takes_turns else None
        return PolicyInput(
            self._rows(observation["obs"]),
            policy_mask,
            self._rows(observation["action_mask"]).astype(bool) if self.masks_actions else None,
        )

    def _rows(self, array: np.ndarray) -> np.ndarray:
        """An array `[G, P, ...]` as rows `[G P, ...]`."""
        return array.reshape(self.num_envs, *array.shape[2:])

    def render(self) -> np.ndarray:
        """A frame `[H, W, 3]` uint8 of the first game; only with `backend.vectorization=sync`."""
        return self._envs.render()

    def close(self) -> None:
        """See `VectorEnv.close`."""
        self._envs.close()


def _make_game(task: Task) -> Game:
    """One game. Raises `ConfigError` if it cannot be made, and `RunError` if it calls `sys.exit`."""
    os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "hide"
    import pettingzoo
    from pettingzoo.utils.conversions import turn_based_aec_to_parallel

    os.environ["SDL_AUDIODRIVER"] = "dummy"  # PettingZoo asks for sound as it is imported
    module, _, env_id = task.id.rpartition(":")
    with as_config_error(f"{env_id} on backend=pettingzoo"):
        if module:
            importlib.import_module(module)
        arguments = _arguments(task, env_id, {**pettingzoo.aec_registry, **pettingzoo.parallel_registry})
        if env_id not in pettingzoo.parallel_registry:
            game = turn_based_aec_to_parallel(pettingzoo.make("aec", env_id, **arguments))
            return Game(env_id, game, takes_turns=True)
        env = pettingzoo.make("parallel", env_id, **arguments)
        return Game(env_id, AtariPlayers(env, task.atari) if task.atari else env, takes_turns=False)


def _arguments(task: Task, env_id: str, known: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the constructor of the game `env_id`. Raises `ConfigError` if it is not among the `known` ones."""
    if env_id not in known:
        close = nearest(env_id, known)
        hint = f"did you mean {', '.join(close)}?" if close else "pettingzoo.pprint_registry() lists them"
        raise ConfigError(f"PettingZoo has no environment {env_id!r}; {hint}")
    arguments = {"render_mode": "rgb_array", **task.kwargs}
    if env_id.startswith("atari/"):
        require_atari(env_id, task.atari)
        return {"auto_rom_install_path": roms(), **arguments}
    if task.atari:
        raise ConfigError(f"{env_id} is not an Atari game: add env.atari=null")
    return arguments
