"""All 57 Atari games: each is found by its short name."""

from __future__ import annotations

import ale_py
import envpool
import gymnasium
import pytest

from ppo_bench.commands.report.published import scale_of
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
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


def test_a_game_by_its_id_is_the_run_of_its_short_name() -> None:
    by_name, by_game = load_config(["env=ms_pacman"]), load_config(["env=atari", "env.game=MsPacman"])
    assert by_name.run_folder == by_game.run_folder
    assert by_name.task.id == "MsPacman-v5"
    assert load_config(["env=breakout", "env.game=Pong"]).run_folder == load_config(["env=pong"]).run_folder
