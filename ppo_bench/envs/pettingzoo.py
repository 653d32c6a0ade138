"""The PettingZoo backend: games whose players act simultaneously or in turn, each in a row of its own
(ppo_bench/envs/turns.py)."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.errors import ConfigError, RunError, exit_as_error, nearest, one_line, require
from ppo_bench.common.values import NOT_HASHED
from ppo_bench.envs.atari_players import AtariPlayers, require_atari, roms
from ppo_bench.envs.base import LIBRARIES, EnvStep, PolicyInput, Task, require_no_info
from ppo_bench.envs.pettingzoo_game import AGENTS_CHANGE, AecGame, Game, ParallelGame
from ppo_bench.envs.spaces import require_supported_spaces
from ppo_bench.envs.turns import get_num_games, require_players
from ppo_bench.envs.vectorized import GymVectorEnv, get_spaces, require_vectorization

_VALIDATION_STEPS = 400
"""Steps of random play before a run starts, which reveal games whose agents come and go."""


@dataclass(frozen=True)
class PettingZooBackend:
    """`backend=pettingzoo`; conf/backend/pettingzoo.yaml explains its options."""

    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    name: str
    vectorization: str = field(metadata=NOT_HASHED)

    def libraries(self, env_id: str) -> tuple[str, ...]:
        """See `Backend.libraries`."""
        return LIBRARIES

    def require(self) -> None:
        """Raise `ConfigError` if its package is missing or an option is out of range."""
        require("pettingzoo", "pettingzoo", "backend=pettingzoo")
        require_vectorization(self.vectorization)

    def make(self, task: Task) -> PettingZooEnv:
        """The environments of `task`."""
        return PettingZooEnv(task, self.vectorization)


class PettingZooEnv:
    """A `VectorEnv` of G games with P players, in G P rows."""

    def __init__(self, task: Task, vectorization: str) -> None:
        task.require_no_wrappers("pettingzoo")
        require_no_info(task, "pettingzoo")
        build = functools.partial(_make_game, task)
        game = build()
        self.players = len(game.agents)
        require_players(task, self.players)
        require_supported_spaces(task, game.player_observation_space, game.player_action_space)
        with exit_as_error(task.id):
            _validate(task, game)
        game.close()
        self.num_envs, games = task.num_envs, get_num_games(task)
        self.observation_space: Any = game.player_observation_space
        self.action_space: Any = game.player_action_space
        self.masks_actions, self.dropped_texts = game.masks_actions, game.dropped_texts
        self.render_fps = game.render_fps
        self._takes_turns = game.takes_turns
        self._reward_clip = task.atari is not None and task.atari.reward_clip
        self._envs = GymVectorEnv(task.id, build, games, vectorization, get_spaces(game))

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
    os.environ["PYGAME_HIDE_SUPPORT_PROMPT"] = "hide"
    import pettingzoo

    os.environ["SDL_AUDIODRIVER"] = "dummy"  # PettingZoo asks for sound as it is imported
    module, _, env_id = task.id.rpartition(":")
    if module:
        _call(task.id, lambda: importlib.import_module(module))
    known = {**pettingzoo.aec_registry, **pettingzoo.parallel_registry}
    if env_id not in known:
        close = nearest(env_id, known)
        hint = f"did you mean {', '.join(close)}?" if close else "pettingzoo.pprint_registry() lists them"
        raise ConfigError(f"PettingZoo has no environment {env_id!r}; {hint}")
    atari, arguments = env_id.startswith("atari/"), {"render_mode": "rgb_array", **task.kwargs}
    if atari:
        require_atari(env_id, task.atari)
        arguments = {"auto_rom_install_path": roms(), **arguments}
    elif task.atari:
        raise ConfigError(f"{env_id} is not an Atari game: add env.atari=null")
    kind: Any = "parallel" if env_id in pettingzoo.parallel_registry else "aec"
    env = _call(env_id, lambda: pettingzoo.make(kind, env_id, **arguments))
    if not hasattr(env, "possible_agents"):
        raise ConfigError(f"{env_id}: it does not say which agents there can be: {AGENTS_CHANGE}")
    if task.atari:
        env = AtariPlayers(env, task.atari)
    return Game(env_id, ParallelGame(env) if kind == "parallel" else AecGame(env))


def _call(env_id: str, make: Callable[[], Any]) -> Any:
    with exit_as_error(env_id):
        try:
            return make()
        except Exception as error:  # whatever the environment's own code raises
            said = one_line(error) or type(error).__name__
            if isinstance(error, OSError) and "rom " in said:
                raise ConfigError(
                    f"{env_id}: {said.split('.', maxsplit=1)[0]}: pip install --force-reinstall ale-py, which brings it"
                ) from error
            raise ConfigError(f"PettingZoo cannot make {env_id!r}: {said}") from error


def _validate(task: Task, game: Game) -> None:
    """Raise `ConfigError` if agents come and go, or the environment raises, within `_VALIDATION_STEPS` of random
    play."""
    rng = np.random.default_rng(0)
    try:
        obs, _ = game.reset(seed=0)
        for _ in range(_VALIDATION_STEPS):
            if game.masks_actions:
                actions: Any = [rng.choice(np.flatnonzero(action_mask)) for action_mask in obs["action_mask"]]
            else:
                game.action_space.seed(int(rng.integers(2**31)))
                actions = game.action_space.sample()
            obs, _, terminated, truncated, _ = game.step(actions)
            if terminated or truncated:
                obs, _ = game.reset()
    except RunError as error:
        raise ConfigError(str(error)) from error
    except Exception as error:  # whatever the environment's own code raises
        said = one_line(error)
        raise ConfigError(f"{task.id}: it fails in random play with {type(error).__name__}: {said}") from error
