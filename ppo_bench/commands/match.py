"""`python -m ppo_bench.match RUN_DIR [overrides]`: how does a run's newest checkpoint play against another player?

Of two players each begins half of the games. The command prints a table and, as its last line, the results as JSON.
conf/match.yaml explains the overrides.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.progress import say
from ppo_bench.configuration.compose import compose_root, typed
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import VectorEnv
from ppo_bench.envs.host import on_host
from ppo_bench.envs.observed import make_env
from ppo_bench.runners import checkpoint
from ppo_bench.runs.match import Game, play_match
from ppo_bench.runs.opponents import Opponent, perfect, uniform
from ppo_bench.runs.play import Agent, Player, load_agent
from ppo_bench.runs.recorded import load_run
from ppo_bench.runs.tic_tac_toe import all_lines

OUTCOMES = ("wins", "draws", "losses")


@dataclass
class Request:
    """The keys of conf/match.yaml; it explains them."""

    against: str
    games: int
    num_boards: int
    greedy: bool
    seed: int
    device: str


def main(arguments: list[str]) -> int:
    """Play the games; print a table and a line of JSON."""
    parser = Parser("python -m ppo_bench.match", description=__doc__)
    parser.add_argument("run", metavar="RUN_DIR", help="a run folder, or one of its checkpoints/iteration_<k>")
    words = "against=RUN_DIR|random|perfect|all games=100 greedy=true seed=1"
    parser.add_argument("overrides", nargs="*", default=[], help=words)
    options = parser.parse_args(arguments)
    request = load_request(options.overrides)
    config, saved = _recorded(options.run, request)
    if config.task.players == 1:
        raise ConfigError(
            f"{config.task.id} is for one player: match is for games; python -m ppo_bench.evaluate plays it"
        )
    boards = min(request.num_boards, request.games)
    env = on_host(make_env(config.backend, config.task.at_least(boards * config.task.players)))
    try:
        agent = load_agent(config, saved, env, request.greedy, request.seed)
        if request.against == "all":
            return _show([_row("both", all_lines(_in_tic_tac_toe(config, agent)))], {})
        opponent = _opponent(config, env, request)
        if request.greedy and isinstance(opponent, Agent):
            say("greedy=true: two runs that take their likeliest moves may repeat a few games; greedy=false samples")
        games = list(play_match(env, config.task.players, agent, opponent, request.games, request.seed))
    finally:
        env.close()
    rows = [_row(name, _outcomes(games, seats)) for name, seats in _seats(config.task.players)]
    extra = {
        "illegal": sum(game.illegal for game in games),
        "return_mean": statistics.fmean(game.returned for game in games),
        "return_mean_by_seat": [
            statistics.fmean(own) if (own := [game.returned for game in games if game.seat == seat]) else None
            for seat in range(config.task.players)
        ],
    }
    return _show(rows, extra)


def load_request(overrides: list[str]) -> Request:
    """The request that the command line's `overrides` describe. Raises `ConfigError` if one is out of range."""
    request: Request = typed("", Request, compose_root("match", overrides), "match")
    for key, value in (("games", request.games), ("num_boards", request.num_boards)):
        if value < 1:
            raise ConfigError(f"{key}={value}: must be at least 1")
    if not 0 <= request.seed < 2**31:
        raise ConfigError(f"seed={request.seed}: must lie between 0 and {2**31 - 1}")
    return request


def _recorded(run: str, request: Request) -> tuple[Config, checkpoint.Checkpoint]:
    """The configuration and the checkpoint that `run` names."""
    path = checkpoint.find(Path(run).expanduser(), snapshots=True)
    saved = checkpoint.load_named(path)
    return load_run(checkpoint.run_of(path), {"device": request.device}), saved


def _opponent(config: Config, env: VectorEnv, request: Request) -> Player:
    """The player that `request.against` names. Raises `ConfigError` if there is none for this game."""
    if request.against == "random":
        return Opponent(uniform(env.action_space), request.seed)
    if request.against == "perfect":
        return Opponent(perfect(config.task), request.seed)
    theirs, saved = _recorded(request.against, request)
    if theirs.task.name != config.task.name:
        raise ConfigError(f"against={request.against}: it plays {theirs.task.name}, and not {config.task.name}")
    return load_agent(theirs, saved, env, request.greedy, request.seed)


def _in_tic_tac_toe(config: Config, agent: Agent) -> Agent:
    if config.task.id not in ("TicTacToe-v1", "tic_tac_toe"):
        raise ConfigError(f"against=all: {config.task.id} has too many lines of play; that is for env=tic_tac_toe")
    if not agent.greedy:
        raise ConfigError("against=all greedy=false: a line of play is one where the same move is always taken")
    return agent


def _seats(players: int) -> list[tuple[str, Sequence[int]]]:
    seats: list[tuple[str, Sequence[int]]] = [(f"seat {seat + 1}", (seat,)) for seat in range(players)]
    return [*seats, ("all", range(players))]


def _outcomes(games: Sequence[Game], seats: Sequence[int]) -> Counter[str]:
    margins = [game.returned - game.best_other for game in games if game.seat in seats]
    return Counter("wins" if margin > 0 else "losses" if margin < 0 else "draws" for margin in margins)


def _row(name: str, outcomes: Counter[str]) -> dict[str, Any]:
    return {"seat": name, "games": outcomes.total(), **{outcome: outcomes[outcome] for outcome in OUTCOMES}}


def _show(rows: Sequence[dict[str, Any]], extra: dict[str, Any]) -> int:
    print("".join(f"{name:>8}" for name in rows[0]))
    for row in rows:
        print("".join(f"{value:>8}" for value in row.values()))
    print(json.dumps({key: value for key, value in rows[-1].items() if key != "seat"} | extra))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
