"""The Python interface: `ppo_bench.train`, `ppo_bench.load` and `ppo_bench.results`, for notebooks and scripts."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.flattened import FlattenedBox
from ppo_bench.configuration.compose import refuse_of_hydra
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import PolicyInput
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.mathematics.arrays import Tree
from ppo_bench.runners import checkpoint
from ppo_bench.runs.play import Agent, Decision, load_agent, play
from ppo_bench.runs.run_config import load_run

if TYPE_CHECKING:
    from pandas import DataFrame

    from ppo_bench.runs.callbacks import Listener

VIEWS = ("runs", "metrics", "episodes")


def train(overrides: Sequence[str] = (), on_iteration: Listener | None = None) -> list[Path]:
    """Train as `python -m ppo_bench` does with these overrides, and return the run folders.

    `on_iteration` is called after each iteration with the run's folder and its new row of metrics.jsonl. The time it
    takes is not counted. What it raises ends the training, which the same call resumes from the last checkpoint. With
    several devices PyTorch trains in processes of its own: a script then needs `if __name__ == "__main__":`, and
    `on_iteration` needs torchrun.

    A finished run is not trained again; an interrupted one is resumed. Raises `ConfigError` for wrong overrides,
    `RunError` if a run fails (others of `num_seeds` or `grid` have ended by then), and `RunInterrupted` on Ctrl-C.
    """
    started_at = time.perf_counter()
    if isinstance(overrides, str) or any(not isinstance(word, str) or word.startswith("-") for word in overrides):
        raise ConfigError(f"overrides={overrides!r}: a list of key=value is expected, as in ['env=cartpole', 'seed=2']")
    refuse_of_hydra(overrides, "for python -m ppo_bench; leave it out")
    config = load_config(list(overrides))
    config.require()
    from ppo_bench.runs.train import train as train_runs

    started_in = Path.cwd()
    folders = train_runs(config, started_at, on_iteration)
    changed = Path.cwd() != started_in  # by an environment
    return [started_in / folder for folder in folders] if changed else folders


def load(
    run_dir: str | os.PathLike[str],
    *,
    greedy: bool = True,
    seed: int = 1,
    framework: str | None = None,
    device: str = "auto",
) -> Trained:
    """The policy of a run's newest checkpoint, or of the checkpoint that `run_dir` names.

    `framework` executes the policy on `device`; None is the framework that trained it. A `greedy` policy takes the
    most probable actions, others sample them with noise from `seed`. Raises `ConfigError` if there is no such
    checkpoint.
    """
    if not 0 <= seed < 2**31:
        raise ConfigError(f"seed={seed}: must lie between 0 and {2**31 - 1}")
    path = checkpoint.find(Path(run_dir))
    changes: dict[str, Any] = {"device": device}
    if framework:
        changes["framework"] = load_config([f"framework={framework}"]).resolved["framework"]
    return Trained(path, load_run(checkpoint.run_of(path), changes), greedy, seed)


def results(run_dir: str | os.PathLike[str], view: str = "runs") -> DataFrame:
    """A data frame of the run folders below `run_dir`. Its rows are runs (view `runs`), iterations (`metrics`) or
    episodes (`episodes`). Runs have a column for each hyperparameter, such as `ppo.gamma`. Raises `ConfigError` if
    there is no run."""
    from ppo_bench.commands.report.database import open_database

    require("pandas", "notebook", "a data frame")
    if view not in VIEWS:
        raise ConfigError(f"view={view}: choose one of {', '.join(VIEWS)}")
    database = open_database([os.fspath(run_dir)])
    database.print_warnings()
    frame: DataFrame = database.connection.execute(f"select * from {view}").df()
    if view != "runs":
        return frame
    settings = type(frame)([json.loads(setting) for setting in frame.pop("setting")], index=frame.index)
    return frame.join(settings[[key for key in settings if key not in frame]])


def _as_arrays(obs: Any) -> Any:
    """Observations with arrays in place of the lists and numbers in their dictionaries and tuples."""
    if isinstance(obs, Mapping):
        return {name: _as_arrays(part) for name, part in obs.items()}
    return tuple(map(_as_arrays, obs)) if isinstance(obs, tuple) else np.asarray(obs)


class Trained:
    """A trained policy with its normalisation of observations and its scaling of actions. Made by `load`."""

    def __init__(self, path: Path, config: Config, greedy: bool, seed: int) -> None:
        self.config, self._seed = config, seed
        env = to_vector_env(make_env(config.backend, config.task.with_num_envs(1)))
        try:
            self.observation_space: Any = env.observation_space
            self.action_space: Any = env.action_space
            self._agent: Agent = load_agent(config, checkpoint.load_named(path), env, greedy, seed)
        finally:
            env.close()
        self.reset()

    def reset(self) -> None:
        """Reset the network's carry and the noise; the next observations are the first of their episodes."""
        self._step = 0
        self._carry: Tree | None = None

    def act(
        self, obs: Any, episode_start: np.ndarray | None = None, action_mask: np.ndarray | None = None
    ) -> np.ndarray:
        """The environments' actions `[N]` or `[N, A]` for their observations `[N, ...]`; arguments as of `decide`."""
        return self.decide(obs, episode_start, action_mask).actions

    def decide(
        self, obs: Any, episode_start: np.ndarray | None = None, action_mask: np.ndarray | None = None
    ) -> Decision:
        """The environments' actions for their observations `[N, ...]`, and the policy's values and distribution.

        Observations of several parts are dictionaries or tuples of arrays `[N, ...]`, or the vectors that the network
        takes. For networks with a carry, `episode_start [N]` marks the first observations of episodes; None means that
        no episode has started since `reset`. `action_mask [N, A]` marks the legal choices. Raises `ConfigError` if
        `obs` has another shape.
        """
        obs = np.asarray(self._flattened(obs), order="C")  # PyTorch takes no negative strides
        if obs.shape[1:] != self.observation_space.shape:
            raise ConfigError(
                f"observations of shape {obs.shape}: expected [N, ...] with ... = {self.observation_space.shape}"
            )
        if self._carry is None:
            self._carry, self._rows = self._agent.carry(len(obs)), len(obs)
            episode_start = np.ones(len(obs), bool)
        if self._carry and len(obs) != self._rows:
            raise ConfigError(f"{len(obs)} observations, and there were {self._rows}: call reset() before others")
        episode_start = np.array(np.zeros(len(obs)) if episode_start is None else episode_start, bool, order="C")
        decision, self._carry = self._agent.decide(
            self._step, PolicyInput(obs, action_mask=action_mask), episode_start, self._carry
        )
        self._step += 1
        return decision

    def _flattened(self, obs: Any) -> np.ndarray:
        """`obs` as one array; the vectors of observations that the environments flatten."""
        space, several = self.observation_space, isinstance(obs, dict | tuple)
        if not several and np.shape(obs)[1:] == space.shape:
            return np.asarray(obs)
        if not isinstance(space, FlattenedBox):
            if several:
                raise ConfigError(
                    f"observations of several parts: expected one array [N, ...] with ... = {space.shape}"
                )
            return np.asarray(obs)
        try:
            return np.asarray(space.flatten(_as_arrays(obs)))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"observations are not arrays [N, ...] of the trained environment's, one as array[None]: {error!r}"
            ) from error

    def evaluate(self, episodes: int = 10, num_envs: int = 10) -> np.ndarray:
        """Returns `[episodes]` of whole episodes of the trained task, played in `num_envs` new environments.

        The returns are sorted by environment, then by time.
        """
        if min(episodes, num_envs) < 1:
            raise ConfigError(f"episodes={episodes}, num_envs={num_envs}: must be at least 1")
        env = to_vector_env(make_env(self.config.backend, self.config.task.with_num_envs(min(num_envs, episodes))))
        try:
            played = sorted(play(env, self._agent, episodes, self._seed), key=lambda e: (e.env, e.step))
            return np.array([episode.episode_return for episode in played])
        finally:
            env.close()
