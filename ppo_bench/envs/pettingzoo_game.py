"""One PettingZoo game as a gymnasium environment, whose observation combines those of all players."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.common.flattened import FlattenedBox, can_flatten, is_text, leaf_spaces_by_name
from ppo_bench.envs.action_masks import MASK, flatten_action_mask, missing_mask_message
from ppo_bench.envs.observation_flattening import drop_texts, scale_bytes

AGENTS_CHANGE = "environments whose agents come and go are not supported"


class Game(gymnasium.Env):
    """One game of P players as a gymnasium environment.

    Its observation is a dictionary of arrays `[P, ...]`: `obs`; `rewards` float32; `policy_mask`, flags of the players
    who are to move; and, if the game masks choices, `action_mask [P, A]`.
    """

    def __init__(self, name: str, table: ParallelGame | AecGame) -> None:
        self._name, self._table = name, table
        self.agents: list[str] = list(table.env.possible_agents)
        self.takes_turns = isinstance(table, AecGame)
        first, *others = self.agents
        self.own_observation_space, self.player_action_space = _spaces(table, first)
        for other in others:
            if _spaces(table, other) != (self.own_observation_space, self.player_action_space):
                raise ConfigError(f"{name}: {first} and {other} have other spaces, and one network is to play both")
        own = self.own_observation_space
        self._in_dictionary = isinstance(own, spaces.Dict) and MASK in own.spaces
        if self._in_dictionary:
            if "observation" not in own.spaces:
                raise ConfigError(f"{name}: observations with {MASK!r} have no key 'observation'")
            own = own["observation"]
        self.dropped_texts = [name for name, part in leaf_spaces_by_name(own).items() if is_text(part)]
        own, self._select = drop_texts(own)
        self._flat = not isinstance(own, spaces.Box) and can_flatten(own)
        self._own_space, self._scaled = scale_bytes(own) if self._flat else (own, lambda obs: obs)
        self.player_observation_space = (
            FlattenedBox(spaces.flatten_space(self._own_space), leaf_spaces_by_name(self._own_space))
            if self._flat
            else own
        )
        self._seeds = np.random.default_rng()
        self._table.reset(0)
        self.masks_actions = self._in_dictionary or any(MASK in info for info in self._table.infos.values())
        self.render_fps = int(getattr(table.env, "metadata", {}).get("render_fps") or 30)
        players = len(self.agents)
        parts: dict[str, spaces.Space] = {
            "obs": batch_space(self.player_observation_space, players),
            "rewards": spaces.Box(-np.inf, np.inf, (players,), np.float32),
            "policy_mask": spaces.MultiBinary(players),
        }
        if self.masks_actions:
            if not isinstance(self.player_action_space, spaces.Discrete):
                raise ConfigError(f"{name}: {MASK!r} is for actions that are one integer")
            parts["action_mask"] = spaces.MultiBinary((players, int(self.player_action_space.n)))
        self.observation_space = spaces.Dict(parts)
        self.action_space = batch_space(self.player_action_space, players)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict]:
        """Start a new game; without `seed`, its seed is drawn from the generator of the last seed."""
        if seed is not None:
            self._seeds = np.random.default_rng(seed)
        self._table.reset(int(self._seeds.integers(2**31)))
        self._require_all(self._table.agents)
        return self._observe(dict.fromkeys(self.agents, 0.0), over=False), {}

    def step(self, actions: Any) -> tuple[dict[str, Any], float, bool, bool, dict]:
        """Make a move with `actions [P, ...]`: of all players, or of the one whose turn it is."""
        table = self._table
        table.step(dict(zip(self.agents, actions, strict=True)))
        ended = {agent for agent in self.agents if table.terminations.get(agent) or table.truncations.get(agent)}
        if not ended:
            self._require_all(table.agents)
        elif len(ended) < len(self.agents):
            raise RunError(
                f"{self._name}: {_names(ended)} ended before {_names(set(self.agents) - ended)}: {AGENTS_CHANGE}"
            )
        terminated = bool(ended) and all(table.terminations.get(agent) for agent in self.agents)
        return self._observe(table.rewards, bool(ended)), 0.0, terminated, bool(ended) and not terminated, {}

    def _require_all(self, agents: Sequence[str]) -> None:
        if set(agents) != set(self.agents):
            raise RunError(f"{self._name}: it has {_names(agents)}, and had {_names(self.agents)}: {AGENTS_CHANGE}")

    def _observe(self, rewards: Mapping[str, float], over: bool) -> dict[str, Any]:
        table = self._table
        observations = [table.observe(agent) for agent in self.agents]
        policy_mask = np.array([not over and table.is_to_move(agent) for agent in self.agents])
        if not self.masks_actions and any(MASK in info for info in table.infos.values()):
            raise RunError(f"{self._name}: {missing_mask_message('infos[...]')}")
        obs = {
            "rewards": np.array([rewards.get(agent, 0.0) for agent in self.agents], np.float32),
            "policy_mask": policy_mask,
        }
        if self.masks_actions:
            masks = [self._mask(*player) for player in zip(self.agents, observations, policy_mask, strict=True)]
            obs["action_mask"] = np.stack(masks) | ~policy_mask[:, None]
        own = [obs["observation"] for obs in observations] if self._in_dictionary else observations
        if self._flat:
            own = [spaces.flatten(self._own_space, self._scaled(self._select(obs))) for obs in own]
        return obs | {"obs": np.stack(own)}

    def _mask(self, agent: str, obs: Any, is_to_move: bool) -> Any:
        """The player's mask of legal choices; in turns, `infos` may have that of the player to move alone."""
        info = obs if self._in_dictionary else self._table.infos[agent]
        if MASK not in info and is_to_move:
            raise RunError(f"{self._name}: infos[{agent!r}] has no {MASK!r}, and {agent} is to move")
        try:
            mask = info.get(MASK, np.ones(self.player_action_space.n, np.int8))
            return flatten_action_mask(mask, self.player_action_space)
        except ValueError as error:
            raise RunError(f"{self._name}, {agent}: {error}") from error

    def render(self) -> Any:
        """See `gymnasium.Env.render`."""
        return self._table.env.render()

    def close(self) -> None:
        """Close the game."""
        self._table.env.close()


class ParallelGame:
    """A PettingZoo environment with the parallel API: all players act in each step."""

    def __init__(self, env: Any) -> None:
        self.env, self.agents = env, list[str]()
        self._obs: dict[str, Any] = {}
        self.infos: dict[str, Any] = {}
        self.rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}

    def reset(self, seed: int) -> None:
        """Start a new game."""
        self._obs, self.infos = self.env.reset(seed=seed)
        self.agents, self.terminations, self.truncations = list(self._obs), {}, {}

    def step(self, actions: dict[str, Any]) -> None:
        """Step the game with the actions of all players."""
        self._obs, self.rewards, self.terminations, self.truncations, self.infos = self.env.step(actions)
        self.agents = list(self._obs)

    def observe(self, agent: str) -> Any:
        """The observation of a player."""
        return self._obs[agent]

    def is_to_move(self, agent: str) -> bool:
        """Whether the game will use the player's action: always."""
        return True


class AecGame:
    """A PettingZoo environment with the AEC API: one player moves after the other."""

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def agents(self) -> list[str]:
        """The players that are in the current game."""
        return list(self.env.agents)

    def reset(self, seed: int) -> None:
        """Start a new game."""
        self.env.reset(seed=seed)

    def step(self, actions: dict[str, Any]) -> None:
        """Make the move of the player whose turn it is."""
        self.env.step(actions[self.env.agent_selection])

    def observe(self, agent: str) -> Any:
        """The observation of a player."""
        return self.env.observe(agent)

    def is_to_move(self, agent: str) -> bool:
        """Whether it is the player's turn."""
        return bool(agent == self.env.agent_selection)

    @property
    def infos(self) -> Mapping[str, Any]:
        """The `info` of each player."""
        return self.env.infos

    @property
    def rewards(self) -> Mapping[str, float]:
        """The reward of each player for the last move."""
        return self.env.rewards

    @property
    def terminations(self) -> Mapping[str, bool]:
        """Whether the game has terminated for each player."""
        return self.env.terminations

    @property
    def truncations(self) -> Mapping[str, bool]:
        """Whether the game was truncated for each player."""
        return self.env.truncations


def _spaces(table: ParallelGame | AecGame, agent: str) -> tuple[Any, Any]:
    return table.env.observation_space(agent), table.env.action_space(agent)


def _names(agents: Iterable[str]) -> str:
    return ", ".join(sorted(agents)) or "nobody"
