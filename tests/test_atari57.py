"""All 57 Atari games: each is found by its short name, and some are played."""

from __future__ import annotations

import ale_py
import envpool
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from ppo_bench.commands.report.published import scale_of
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv
from ppo_bench.envs.random_play import random_actions
from tests.test_config import OFFERED

pytestmark = pytest.mark.slow

IDS = {(env, backend): env_id for env, backend, env_id in OFFERED}
GAMES = sorted(path.stem for path in (CONF / "env").glob("*.yaml") if "# Atari: " in path.read_text())


def test_there_are_57_games_and_each_has_its_scale_between_random_and_human_play() -> None:
    assert len(GAMES) == 57
    for backend in ("gymnasium", "envpool"):
        scales = [scale_of(IDS[game, backend]) for game in GAMES]
        assert {scale and scale.high_is for scale in scales} == {"human"}
        assert len({scale.env for scale in scales if scale}) == 57


def test_every_backend_knows_every_game() -> None:
    gymnasium.register_envs(ale_py)
    for backend, known in {"gymnasium": gymnasium.registry, "envpool": envpool.list_all_envs()}.items():
        assert [game for game in GAMES if IDS[game, backend] not in known] == []


@pytest.mark.parametrize("game", ["breakout", "freeway", "montezuma_revenge"])  # others differ in the id alone
def test_a_game_is_played(game: str) -> None:
    config = load_config([f"env={game}", "ppo.num_envs=2", "ppo.num_minibatches=1"])
    env, rng = config.backend.make(config.task), np.random.default_rng(1)
    assert not isinstance(env, GraphEnv)
    assert env.reset([1, 2]).obs.shape == (2, 4, 84, 84)
    assert isinstance(env.action_space, spaces.Discrete)
    assert 3 <= env.action_space.n <= 18
    frames = []
    for _ in range(100):
        step = env.step(random_actions(env, rng))
        assert np.isfinite(step.reward).all()
        frames.append(step.obs[:, -1])
    assert np.ptp(frames, axis=0).max(axis=(1, 2)).min() > 0  # in each environment something moves
    env.close()


def test_a_game_by_its_id_is_the_run_of_its_short_name() -> None:
    by_name, by_game = load_config(["env=ms_pacman"]), load_config(["env=atari", "env.game=MsPacman"])
    assert by_name.run_folder == by_game.run_folder
    assert by_name.task.id == "MsPacman-v5"
    assert load_config(["env=breakout", "env.game=Pong"]).run_folder == load_config(["env=pong"]).run_folder
