"""All 57 Atari games: each is found by its short name, is played, and three of them are trained."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from pathlib import Path

import ale_py
import envpool
import envpool_assets
import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from omegaconf import OmegaConf

from ppo_bench.__main__ import main
from ppo_bench.commands.report.published import scale_of
from ppo_bench.common.cli import exit_code
from ppo_bench.common.paths import CONF
from ppo_bench.configuration.compose import snake_case
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import GraphEnv
from ppo_bench.envs.random_play import random_actions
from tests.processes import TRAIN
from tests.test_config import OFFERED
from tests.training import ENVIRONMENT, rows

pytestmark = pytest.mark.slow

IDS = {(env, backend): env_id for env, backend, env_id in OFFERED}
GAMES = sorted(path.stem for path in (CONF / "env").glob("*.yaml") if "# Atari: " in path.read_text())
TWO_TIMES_100 = ["ppo.num_envs=2", "ppo.num_steps=100", "ppo.update_epochs=1", "total_timesteps=200"]
SMALL = ["network=mlp", "network.hidden_sizes=[16]", "framework.num_threads=1"]  # the games are what is tested


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


@pytest.mark.parametrize("game", GAMES)
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


@pytest.mark.parametrize("game", ["freeway", "montezuma_revenge", "ms_pacman"])  # 3, 18 and 9 actions
def test_a_game_starts_steps_200_times_and_ends_with_a_valid_result(game: str, tmp_path: Path) -> None:
    assert exit_code(main, [f"env={game}", *TWO_TIMES_100, *SMALL, f"outputs={tmp_path}"]) == 0
    (folder,) = (path.parent for path in tmp_path.rglob("result.json"))
    assert folder.parent.name.startswith(f"{game}-envpool-torch_eager-")
    result = json.loads((folder / "result.json").read_text())
    assert (result["status"], result["env"], result["global_step"]) == ("complete", game, 200)
    assert result["steady_sps"] is None or result["steady_sps"] > 0
    (row,) = rows(folder)
    learnt = [row[name] for name in ("policy_loss", "value_loss", "entropy", "gradient_norm")]
    assert all(math.isfinite(value) for value in learnt)
    assert 0 < row["entropy"] <= math.log(18) + 1e-6
    episodes = rows(folder, "episodes")
    assert all(0 < episode["length"] <= 100 and math.isfinite(episode["return"]) for episode in episodes)
    assert len(episodes) == result["episodes"]


def test_every_game_is_called_by_its_file_s_name() -> None:
    assert [snake_case(OmegaConf.load(CONF / f"env/{game}.yaml").env.game) for game in GAMES] == GAMES


def test_a_game_by_its_id_is_the_run_of_its_short_name() -> None:
    by_name, by_game = load_config(["env=ms_pacman"]), load_config(["env=atari", "env.game=MsPacman"])
    assert by_name.run_folder == by_game.run_folder
    assert by_name.task.id == "MsPacman-v5"
    assert load_config(["env=breakout", "env.game=Pong"]).run_folder == load_config(["env=pong"]).run_folder


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("env=brekout", "unknown env/brekout; did you mean breakout, minatar_breakout?"),
        ("env=atari env.game=Brekout", "EnvPool has no Atari game 'Brekout'; did you mean Breakout"),
        ("env=atari env.game=Pong-v5", "EnvPool has no Atari game 'Pong-v5'; did you mean Pong?"),
        ("env=atari env.game=", "env.game=: must not be empty"),
        ("env=atari env.game=QBERT", "did you mean Qbert?"),
        ("env=atari env.game=Brekout backend=gymnasium", "Did you mean: `BreakoutNoFrameskip`?"),
        ("env=atari env.game=null", "EnvPool has no Atari game 'None'"),
        ("env.game=Pong", "env.game=Pong: cartpole has no such choice"),
    ],
)
def test_an_unknown_game_is_one_line_with_the_nearest_names(
    words: str, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, [*words.split(), f"outputs={tmp_path}"]) == 2
    said = capsys.readouterr().err.strip()
    assert line in said
    assert "\n" not in said


@pytest.mark.parametrize("backend", ["envpool", "gymnasium"])
def test_a_missing_rom_is_one_line(backend: str, tmp_path: Path) -> None:
    """In a process of its own, to which the packages' own variables show a folder with every ROM but one."""
    assets = envpool_assets.asset_path()
    shutil.copytree(assets / "atari", tmp_path / "envpool" / "atari")
    shutil.copytree(Path(ale_py.__file__).parent / "roms", tmp_path / "ale")
    for rom in tmp_path.rglob("krull.bin"):
        rom.unlink()
    places = {"ENVPOOL_ASSETS_PATH": str(tmp_path / "envpool"), "ALE_ROMS_DIR": str(tmp_path / "ale")}
    command = [*TRAIN, "env=krull", f"backend={backend}", f"outputs={tmp_path}/outputs"]
    run = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT | places, check=False)
    said = run.stderr.strip()
    assert run.returncode == 2, said
    assert "ROM" in said
    assert {"envpool": "envpool-assets", "gymnasium": "ale-py"}[backend] in said
    assert "\n" not in said
