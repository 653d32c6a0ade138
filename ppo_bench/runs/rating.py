"""Ratings of a run's checkpoints in a game, where the mean return in self-play is zero at any level of skill.

Each checkpoint's policy plays against some earlier checkpoints, and the results update the ratings of all of them (Weng
and Lin 2011, the Plackett-Luce model of openskill). Opponents and seeds depend on the run's files alone, so a resumed
run gets the same ratings. `ratings.json` holds the latest ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.common.files import write_json
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.host import on_host
from ppo_bench.envs.observed import make_env
from ppo_bench.envs.vectorized import in_this_process
from ppo_bench.mathematics import noise
from ppo_bench.runners import checkpoint
from ppo_bench.runs.loop_state import LoopState
from ppo_bench.runs.match import play_match
from ppo_bench.runs.play import Agent, load_agent
from ppo_bench.runs.results import RATINGS

BOARDS = 32


class Rater:
    """The ratings of runs that are trained together; disabled in tasks of one player and by `rating.games=0`."""

    def __init__(self, config: Config) -> None:
        """Raises `ConfigError` if ratings are enabled and openskill is not installed."""
        self._config, self._wanted = config, config.root.rating
        self._on = config.task.players > 1 and self._wanted.games > 0
        self._env: VectorEnv | None = None
        if self._on:
            require("openskill", "games", f"rating.games={self._wanted.games}")

    def is_due(self, loop: LoopState) -> bool:
        """Whether the newest checkpoint has no rating yet."""
        return self._on and loop.iteration > 0 and str(loop.iteration) not in loop.ratings

    def rate(self, folder: Path, loop: LoopState, seed: int, stop: Sequence[int]) -> float:
        """Rate the newest checkpoint of the run in `folder` if that is due; returns the seconds taken.

        Stops without a rating as soon as `stop` is not empty; the resumed run then makes it.
        """
        if not self.is_due(loop) or stop:
            return 0.0
        started, checkpoints = time.perf_counter(), folder / "checkpoints"
        try:
            newest = self._agent(checkpoints, loop.iteration, seed)
        except ConfigError:  # a run that starts from another run's checkpoint has none of its own yet
            return time.perf_counter() - started
        ratings = {iteration: self._rating(*numbers) for iteration, numbers in loop.ratings.items()}
        latest = max(ratings, key=int, default=None)
        own = self._rating(ratings[latest].mu) if latest else self._rating()
        others = self._others(checkpoints, ratings, loop.best_iteration)
        seeds = noise.env_seeds(seed, loop.iteration, len(others), noise.Stream.RATINGS)
        margins: dict[str, list[float]] = {}
        for other, drawn in zip(others, seeds, strict=True):
            try:
                theirs = self._agent(checkpoints, int(other), seed)
            except ConfigError as error:  # no later run needs it, so the training goes on
                say(f"{error}; the rating is made without it")
                continue
            margins[other] = self._margins(newest, theirs, drawn, stop)
            if stop:
                return time.perf_counter() - started
        # One game against each opponent in turn: all games against one opponent in a row would bias the rating.
        for games in zip(*margins.values(), strict=True):
            for other, margin in zip(margins, games, strict=True):
                ranks = [0, 0] if margin == 0 else [int(margin < 0), int(margin > 0)]
                [[own], [ratings[other]]] = self._model.rate([[own], [ratings[other]]], ranks=ranks)
        ratings[str(loop.iteration)] = own
        loop.ratings = {iteration: [rating.mu, rating.sigma] for iteration, rating in ratings.items()}
        loop.note_best_rating()
        write_json(folder / RATINGS, loop.ratings)
        if loop.best_iteration is not None:
            checkpoint.link_best(checkpoints, loop.best_iteration)
        return time.perf_counter() - started

    def close(self) -> None:
        """Close the environments of the games."""
        if self._env:
            self._env.close()

    def _others(self, checkpoints: Path, ratings: dict[str, Any], best: int | None) -> list[str]:
        """Iterations of the opponents: rated checkpoints that the run keeps, spread evenly from oldest to newest."""
        kept = sorted(ratings, key=int)[-self._config.root.checkpoint.keep :]
        rated = {*kept, *([str(best)] if str(best) in ratings else [])}
        there = [k for k in sorted(rated, key=int) if checkpoint.exists(checkpoints, int(k))]
        places = np.linspace(0, len(there) - 1, min(self._wanted.opponents, len(there)))
        return [there[round(place)] for place in places]

    def _margins(self, ours: Agent, theirs: Agent, seed: int, stop: Sequence[int]) -> list[float]:
        """Margins of the games: our return less the best return of another player, one for each game."""
        games = play_match(self._games(), self._config.task.players, ours, theirs, self._wanted.games, seed, stop)
        return [game.returned - game.best_other for game in games]

    def _agent(self, checkpoints: Path, iteration: int, seed: int) -> Agent:
        saved = checkpoint.load_iteration(checkpoints, iteration)
        return load_agent(self._config, saved, self._games(), greedy=False, seed=seed)

    def _games(self) -> VectorEnv:
        if self._env is None:
            task = self._config.task
            boards = min(BOARDS, self._wanted.games)
            self._env = on_host(make_env(in_this_process(self._config.backend), task.at_least(boards * task.players)))
        return self._env

    @cached_property
    def _model(self) -> Any:
        from openskill.models import PlackettLuce

        return PlackettLuce()

    def _rating(self, mu: float | None = None, sigma: float | None = None) -> Any:
        return self._model.rating(mu=mu, sigma=sigma)
