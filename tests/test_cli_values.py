"""Wrong values of algorithms, networks, games, grids, seeds, devices, evaluations and sweeps: one line, no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.refusals import assert_one_line, assert_untrained
from tests.test_cli import command

IN_JAX = "framework=jax_xla backend=device"
ADAPTIVE = "ppo.anneal_lr=false ppo.adaptive_kl=0.01"
GRID = "grid={ppo.learning_rate:[1e-3,2.5e-4],ppo.ent_coef:[0,0.01]}"
PONG = "framework=torch_eager env=pong_two_players ppo.num_envs=4"
OTHERS = "framework=torch_eager env=atari_two_players ppo.num_envs=4"

WRONG = {
    # algorithms
    "ppo.adaptive_kl=0.01": "ppo.adaptive_kl=0.01 adapts the learning rate: add ppo.anneal_lr=false",
    f"{ADAPTIVE} ppo.learning_rate=0.1": "ppo.learning_rate=0.1: with ppo.adaptive_kl it must lie between",
    f"{ADAPTIVE} {IN_JAX} grid={{ppo.learning_rate:[1e-4,0.1]}}": "ppo.learning_rate=0.1: with ppo.adaptive_kl it must",
    "ppo.anneal_lr=false ppo.adaptive_kl=0": "ppo.adaptive_kl=0.0: must be above 0",
    "ppo.final_ent_coef=0": "ppo.final_ent_coef=0.0 is reached after ppo.anneal_timesteps: say how many",
    "ppo.weight_decay=-1": "ppo.weight_decay=-1.0: must not be negative",
    "algorithm=rnd algorithm.int_gamma=1.5": "algorithm.int_gamma=1.5: must lie between 0 and 1",
    "algorithm=rnd algorithm.update_proportion=0": "algorithm.update_proportion=0.0: must be above 0, at most 1",
    "algorithm=rnd algorithm.warm_up_iterations=-1": "algorithm.warm_up_iterations=-1: must not be negative",
    "algorithm=rnd algorithm.int_coef=nan": "algorithm.int_coef=nan: must not be negative",
    "algorithm=rnd algorithm.features=0": "algorithm.features=0: must be at least 1",
    # networks
    "network=trxl network.memory=0": "network.memory=0: must be at least 1",
    "network=trxl network.positions=relative": "network.positions=relative: choose none, absolute or learned",
    "network=lstm network.units=0": "network.units=0: must be at least 1",
    # games
    "env=tic_tac_toe ppo.num_envs=16 evaluation.every_iterations=2": "plays checkpoints of games",
    f"{PONG} backend.vectorization=both": "backend.vectorization=both: choose sync or async",
    # several runs in a program, several devices
    "num_seeds=0": "num_seeds=0: must be at least 1",
    "framework=torch_eager num_seeds=2": "elsewhere use a sweep: -m seed=1,2",
    "framework=jax_xla backend=envpool num_seeds=2": "num_seeds=2 is for framework=jax_xla backend=device",
    f"{GRID} framework=torch_eager backend=gymnasium": "-m ppo.learning_rate=0.001,0.00025 ppo.ent_coef=0.0,0.01",
    f"{GRID} framework=torch_eager": "grid is for framework=jax_xla backend=device",
    f"{IN_JAX} grid={{ppo.num_steps:[64,128]}}": "grid has ppo.num_steps: one program takes several values of",
    f"{IN_JAX} grid={{ppo.gamma:[0.9,1.1]}}": "grid: ppo.gamma=1.1: must lie between 0 and 1",
    f"{IN_JAX} grid={{ppo.gamma:[0.9]}} ppo.norm_reward=true": "ppo.norm_reward=true needs one ppo.gamma",
    f"-m {IN_JAX} {GRID} hydra/sweeper=optuna ppo.gae_lambda=interval(0.8,0.99)": "grid: a search judges one set",
    f"{IN_JAX} {GRID} ppo.shards=2 devices=2": "devices=2: num_seeds=1 and grid divide the devices among runs",
    f"{IN_JAX} devices=2 ppo.shards=2 num_seeds=2": "devices=2: num_seeds=2 and grid divide the devices among runs",
    "devices=2": "add ppo.shards=2, which is another experiment",
    "devices=0": "devices=0: must be at least 1",
    "ppo.shards=3": "ppo.shards=3 does not divide ppo.num_envs=4: choose a divisor",
    "devices=2 ppo.shards=2 device=cuda:1": "device=cuda:1 names one, and devices=2: use device=cuda",
    "env=tic_tac_toe ppo.num_envs=6 ppo.shards=2 ppo.num_minibatches=1": "each shard of 3 rows must have whole ones",
    # evaluations and trackers
    "evaluation.every=1": "unknown key evaluation.every; choose from every_iterations episodes",
    f"{IN_JAX} framework.iterations_per_call=2 evaluation.every_iterations=3": "does not divide evaluation",
    "+tracker._target_=tests.trackers.Troubled": "begins with the line # @package tracker.<name>",
    # sweeps
    "-m seed=1,2 ppo.num_minibatches=4,3": "ppo.num_minibatches=3 does not divide the batch",
    "-m seed=range(1,3) env=cartpole,nothing": "env/nothing",
    "-m seed=1,2 ppo.gama=0.9": "did you mean gamma?",
    "-m seed=range(1": "range(1",
    "-m env.id=CartPole-v1,Nothing-v0 backend=gymnasium": "Nothing-v0 on backend=gymnasium raises NameNotFound: ",
    "-m hydra.sweeper.max_batch_size=0": "hydra.sweeper.max_batch_size=0: must be at least 1",
    "-m hydra/sweeper=optuna ppo.learning_rat=interval(1e-4,1e-2)": "unknown key ppo.learning_rat; did you mean learn",
    "-m hydra/sweeper=optuna ppo.learning_rate=interval(0,1)": "ppo.learning_rate=0.0: must be above 0",
}
TRIED = {
    "env=tic_tac_toe env.players=3 ppo.num_envs=3": "env.players=3: TicTacToe-v1 is a game of 2 players; set env.play",
    "env=tic_tac_toe ppo.num_envs=5": "ppo.num_envs=5: TicTacToe-v1 has a row for each of env.players=2; choose a mul",
    "env.players=2 backend=gymnasium": "env.players=2: CartPole-v1 is for one player; set env.players=1",
    f"{PONG} env.atari.episodic_life=true": "env.atari.episodic_life=true: players of atari/",
    f"{PONG} ppo.num_envs=3": "ppo.num_envs=3: atari/pong-v3 has a row for each of",
    "network=trxl network.heads=3": "network.dim=64: must be even, and a multiple of network.heads=3",
    "network=lstm ppo.num_envs=2 ppo.num_minibatches=4": "does not divide 2, which is ppo.num_envs / ppo.shards=1",
    "env.observe=[4]": "env.observe=[4]: CartPole-v1 has no such components",
    "algorithm=rnd env=pong env.atari.frames=3": "env.atari.frames=3: algorithm=rnd would take three grey frames",
    f"{IN_JAX} env.info=[speed]": "env.info: backend=device tells none",
    f"{PONG} env.kwargs={{auto_rom_install_path:/nowhere}}": "raises OSError: rom pong is not installed",
    f"{OTHERS} env.game=pongg-v3": "PettingZoo has no environment 'atari/pongg-v3'; did you mean atari/pong-v3",
    f"{OTHERS} env.game=warlords-v3": "env.players=2: atari/warlords-v3 is a game of 4 players",
}
"""What shows when environment and network are tried, after Hydra has written the configuration."""


@pytest.mark.parametrize(("text", "fragment"), [*WRONG.items(), *TRIED.items()], ids=str)
def test_a_wrong_value_is_one_line(
    text: str, fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code(main, command(text, tmp_path / "outputs")) == 2
    printed = capfd.readouterr()
    assert_one_line(printed.err, fragment)
    assert printed.out == ""
    assert_untrained(tmp_path)
    assert text in TRIED or list(tmp_path.iterdir()) == []
