"""One PettingZoo game as a gymnasium environment, whose observation combines those of all players."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.envs.action_masks import MASK, flatten_action_mask
from ppo_bench.envs.observation_flattening import observation_flattener

AGENTS_CHANGE = "environments whose agents come and go are not supported"


class Game(gymnasium.Env):
    """One game of P players as a gymnasium environment.

    Its observation is a dictionary of arrays `[P, ...]`: `obs`; `rewards` float32; `policy_mask`, flags of the players
    who are to move; and, if the game masks choices, `action_mask [P, A]`.
    """

    def __init__(self, name: str, env: Any, takes_turns: bool) -> None:
        """`env` has PettingZoo's parallel API; a game of turns is converted by `turn_based_aec_to_parallel`."""
        self._name, self._env, self.takes_turns = name, env, takes_turns
        self.agents: list[str] = list(env.possible_agents)
        first, *others = self.agents
        own, self.player_action_space = env.observation_space(first), env.action_space(first)
        for other in others:
            if (env.observation_space(other), env.action_space(other)) != (own, self.player_action_space):
                raise ConfigError(f"{name}: {first} and {other} have other spaces, and one network is to play both")
        self._masks_in_obs = isinstance(own, spaces.Dict) and MASK in own.spaces
        if self._masks_in_obs:
            own = own["observation"]
        self._flattener = observation_flattener(own)
        self.player_observation_space = self._flattener.space if self._flattener else own
        self._seeds = np.random.default_rng()
        _, infos = env.reset(seed=0)
        self.masks_actions = self._masks_in_obs or any(MASK in info for info in infos.values())
        self.render_fps = int(getattr(env, "metadata", {}).get("render_fps") or 30)
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
        obs, infos = self._env.reset(seed=int(self._seeds.integers(2**31)))
        self._require_all(obs)
        return self._observe(obs, infos, {}, over=False), {}

    def step(self, actions: Any) -> tuple[dict[str, Any], float, bool, bool, dict]:
        """Make a move with `actions [P, ...]`: of all players, or of the one whose turn it is."""
        moves = dict(zip(self.agents, actions, strict=True))
        obs, rewards, terminations, truncations, infos = self._env.step(moves)
        ended = {agent for agent in self.agents if terminations.get(agent) or truncations.get(agent)}
        if not ended:
            self._require_all(obs)
        elif len(ended) < len(self.agents):
            raise RunError(
                f"{self._name}: {_names(ended)} ended before {_names(set(self.agents) - ended)}: {AGENTS_CHANGE}"
            )
        terminated = bool(ended) and all(terminations.get(agent) for agent in self.agents)
        observed = self._observe(obs, infos, rewards, bool(ended))
        return observed, 0.0, terminated, bool(ended) and not terminated, {}

    def _require_all(self, agents: Iterable[str]) -> None:
        if set(agents) != set(self.agents):
            raise RunError(f"{self._name}: it has {_names(agents)}, and had {_names(self.agents)}: {AGENTS_CHANGE}")

    def _observe(
        self, obs: Mapping[str, Any], infos: Mapping[str, Any], rewards: Mapping[str, float], over: bool
    ) -> dict[str, Any]:
        mover = self._env.aec_env.agent_selection if self.takes_turns else None
        policy_mask = np.array([not over and mover in (agent, None) for agent in self.agents])
        observed = {
            "rewards": np.array([rewards.get(agent, 0.0) for agent in self.agents], np.float32),
            "policy_mask": policy_mask,
        }
        if self.masks_actions:
            masks = obs if self._masks_in_obs else infos
            for agent, is_to_move in zip(self.agents, policy_mask, strict=True):
                if is_to_move and MASK not in masks.get(agent, {}):
                    raise RunError(f"{self._name}: infos[{agent!r}] has no {MASK!r}, and {agent} is to move")
            flags = [self._mask(agent, masks.get(agent, {})) for agent in self.agents]
            observed["action_mask"] = np.stack(flags) | ~policy_mask[:, None]
        elif any(MASK in info for info in infos.values()):
            raise RunError(f"{self._name}: infos have {MASK!r}, and those of reset have none: give it in both")
        own = [obs[agent]["observation"] if self._masks_in_obs else obs[agent] for agent in self.agents]
        if self._flattener:
            own = [self._flattener.flatten_row(part) for part in own]
        return observed | {"obs": np.stack(own)}

    def _mask(self, agent: str, info: Mapping[str, Any]) -> np.ndarray:
        """A player's mask of legal choices; in turns, `infos` may have that of the player to move alone."""
        try:
            mask = info.get(MASK, np.ones(self.player_action_space.n, np.int8))
            return flatten_action_mask(mask, self.player_action_space)
        except ValueError as error:
            raise RunError(f"{self._name}, {agent}: {error}") from error

    def render(self) -> Any:
        """See `gymnasium.Env.render`."""
        return self._env.render()

    def close(self) -> None:
        """Close the game."""
        self._env.close()


def _names(agents: Iterable[str]) -> str:
    return ", ".join(sorted(agents)) or "nobody"
