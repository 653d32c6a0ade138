"""Every kind of wrong input ends with exit code 2, one line that says what to change, and no folder."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.processes import TRAIN
from tests.refusals import assert_one_line, assert_refused, assert_untrained
from tests.training import ENVIRONMENT, GYM, SHORT

IN_JAX = "framework=jax_xla backend=device"
ADAPTIVE = "ppo.anneal_lr=false ppo.adaptive_kl=0.01"
GRID = "grid={ppo.learning_rate:[1e-3,2.5e-4],ppo.ent_coef:[0,0.01]}"
PONG = "framework=torch_eager env=pong_two_players ppo.num_envs=4"
OTHERS = "framework=torch_eager env=atari_two_players ppo.num_envs=4"

WRONG = {
    # choices
    "env=cartpol": "unknown env/cartpol; did you mean cartpole",
    "framework=tensorflow": "jax_xla torch_compile torch_eager",
    # pairs
    "framework=torch_eager env=minatar_breakout ppo.num_envs=4": "part of a JAX program: use framework=jax_xla",
    "framework=jax_xla env=pong backend=device": "available with backend=envpool",
    # keys
    "--config-dir=nowhere": "nowhere' not found",
    "tests": "'tests'",
    "ppo.gama=0.9": "unknown key ppo.gama; did you mean gamma?",
    "backend=gymnasium backend.num_threads=2": "unknown key backend.num_threads; choose from",
    "tracker.wandb.mode=offline": "unknown key tracker.wandb",
    "frmework=jax_xla": "did you mean framework",
    "+surprise=1": "unknown key surprise; choose from name seed num_seeds",
    "~ppo.gama": "'ppo.gama' does not exist",
    "~env.ids": "env.ids",
    # types
    "ppo.gamma=high": "ppo.gamma=high: Value 'high'",
    "seed=null": "seed=null: ",
    "experiment=cleanrl/ppo_atari env=cartpole": "env.atari.episodic_life: ",
    # ranges
    "seed=2147483648": "seed=2147483648: must lie between 0 and 2147483647",
    "precision=float16": "precision=float16: choose one of float32, tf32, bfloat16, float64",
    "device=tpu": "device=tpu: choose auto, cpu, cuda or cuda:<i>",
    "name=../elsewhere": "name=../elsewhere: must be a relative path without '..'",
    "outputs=''": "outputs=: must name a folder",
    "checkpoint.fine_tune=true": "checkpoint.fine_tune=true: name the run to begin with by checkpoint.load=RUN_DIR",
    "ppo.num_envs=0": "ppo.num_envs=0: must be at least 1",
    "ppo.learning_rate=inf": "ppo.learning_rate=inf: must be above 0 and finite",
    "ppo.gamma=nan": "ppo.gamma=nan: must lie between 0 and 1",
    "ppo.vf_coef=inf": "ppo.vf_coef=inf: must not be negative or infinite",
    "collective_timeout_seconds=1e300": "collective_timeout_seconds=1e+300: must be above 0 and at most 1_000_000",
    "env.kwargs={layout:{0:1}}": "env.kwargs={'layout': {0: 1}}: run.json records it: keys of a mapping must be names",
    "framework=torch_compile framework.cudagraphs=perhaps": "framework.cudagraphs=perhaps: choose auto, update, true",
    "framework=torch_compile framework.mode=fast": "framework.mode=fast: choose default or",
    "framework.num_threads=0": "framework.num_threads=0: must be at least 1, or null",
    "backend=gymnasium backend.vectorization=fork": "backend.vectorization=fork: choose sync or async",
    # what does not go together
    "ppo.anneal_lr=false ppo.final_learning_rate=1e-5": "ppo.final_learning_rate=1e-05 needs ppo.anneal_lr=true",
    "ppo.num_minibatches=3": "ppo.num_minibatches=3 does not divide the batch of ppo.num_envs x ppo.num_steps = 512",
    "backend=envpool backend.num_groups=3": "backend.num_groups=3 does not divide the games of ppo.num_envs=4",
    "backend=envpool backend.num_groups=2 ppo.norm_reward=true": "backend.num_groups=2: running statistics are of all",
    "backend=envpool backend.num_groups=2 devices=2 ppo.shards=2": "backend.num_groups=2: with devices=2 each device",
    "total_timesteps=511": "total_timesteps=511 is less than one iteration of ppo.num_envs x ppo.num_steps = 512",
    "backend=envpool ~env.ids.envpool": "backend=envpool has no env=cartpole; available with backend=device",
    # syntax and interpolations
    "seed=[1": "[1",
    "seed=1,2": "'seed=1,2'",
    "ppo.gamma=${nothing.here}": "ppo.gamma: Interpolation key 'nothing.here' not found",
    "framework._target_=os.nothing": "'os.nothing'",
    "framework._target_=ppo_bench.common.rows.Rows": "'ppo_bench.common.rows.Rows'",
    # trackers
    "tracker=wandb tracker.wandb.mode=off": "tracker.wandb.mode=off: choose online, offline or disabled",
    # Hydra's own flags
    "--cfg job seed=1,2": "'seed=1,2'",
    "-m --cfg job": "Only one of --run, --multirun, --cfg, --info and --shell_completion can be specified",
    "-m seed=range(1,1)": "seed=range(1,1): there is no such value to sweep over",
    "-m seed=range(1,1) hydra/sweeper=optuna": "seed=range(1,1): there is no such value to sweep over",
    "--config-name=mine": "Cannot find primary config 'mine'",
    "--cfg job ppo.gama=0.9": "did you mean gamma?",
    "network=mlp network.activation=swish": "network.activation=swish: choose one of tanh, relu, leaky_relu, elu, gelu",
    "network=mlp network.hidden_sizes=[64,0]": "network.hidden_sizes=[64, 0]: every size must be at least 1",
    # algorithms
    "ppo.adaptive_kl=0.01": "ppo.adaptive_kl=0.01 adapts the learning rate: add ppo.anneal_lr=false",
    f"{ADAPTIVE} ppo.learning_rate=0.1": "ppo.learning_rate=0.1: with ppo.adaptive_kl it must lie between",
    f"{ADAPTIVE} {IN_JAX} grid={{ppo.learning_rate:[1e-4,0.1]}}": "ppo.learning_rate=0.1: with ppo.adaptive_kl it must",
    "ppo.final_ent_coef=0": "ppo.final_ent_coef=0.0 is reached after ppo.anneal_timesteps: say how many",
    "algorithm=rnd algorithm.int_gamma=1.5": "algorithm.int_gamma=1.5: must lie between 0 and 1",
    "algorithm=rnd algorithm.update_proportion=0": "algorithm.update_proportion=0.0: must be above 0, at most 1",
    # networks
    "network=trxl network.positions=relative": "network.positions=relative: choose none, absolute or learned",
    "network=lstm network.units=0": "network.units=0: must be at least 1",
    # games
    "env=tic_tac_toe ppo.num_envs=16 evaluation.every_iterations=2": "plays checkpoints of games",
    # several runs in a program, several devices
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
    "ppo.shards=3": "ppo.shards=3 does not divide ppo.num_envs=4: choose a divisor",
    "devices=2 ppo.shards=2 device=cuda:1": "device=cuda:1 names one, and devices=2: use device=cuda",
    "env=tic_tac_toe ppo.num_envs=6 ppo.shards=2 ppo.num_minibatches=1": "each shard of 3 rows must have whole ones",
    # evaluations and trackers
    "+tracker._target_=tests.trackers.Troubled": "begins with the line # @package tracker.<name>",
    # sweeps
    "-m seed=1,2 ppo.num_minibatches=4,3": "ppo.num_minibatches=3 does not divide the batch",
    "-m seed=range(1,3) env=cartpole,nothing": "env/nothing",
    "-m seed=range(1": "range(1",
    "-m env.id=CartPole-v1,Nothing-v0 backend=gymnasium": "Nothing-v0 on backend=gymnasium raises NameNotFound: ",
    "-m hydra.sweeper.max_batch_size=0": "hydra.sweeper.max_batch_size=0: must be at least 1",
    "-m hydra/sweeper=optuna ppo.learning_rat=interval(1e-4,1e-2)": "unknown key ppo.learning_rat; did you mean learn",
    "-m hydra/sweeper=optuna ppo.learning_rate=interval(0,1)": "ppo.learning_rate=0.0: must be above 0",
}
TRIED = {
    "network=nature_cnn": "this network takes images, not observations of shape (4,): use network=mlp, lstm or gru",
    "env=breakout backend=envpool ppo.norm_obs=true": "ppo.norm_obs=true is for observations of floats",
    "env=breakout backend=gymnasium env.id=CartPole-v1": "CartPole-v1",
    "device=cuda:64": "device=cuda:64: PyTorch sees ",
    "precision=tf32 device=cpu": "precision=tf32 needs a GPU that has it",
    "backend=envpool env.id=CartPol-v1": "EnvPool has no environment 'CartPol-v1'; did you mean CartPole-v1",
    "env.id=Nothing-v0 backend=gymnasium": "Nothing-v0 on backend=gymnasium raises NameNotFound: ",
    "env.id=ConnectFour-v1 backend=envpool": "is a game of 2 players; set env.players=2",
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
"""What shows when environment, network and device are tried, after Hydra has written the configuration."""

# The exit code of a whole process; EnvPool aborts at the number of threads unless it is checked before.
WRONG_IN_A_PROCESS = {
    "backend=envpool backend.num_threads=-1": "backend.num_threads=-1",
    "-m seed=1,2 ppo.gamma=0.9,1.5": "ppo.gamma=1.5: must lie between 0 and 1",
}


def command(text: str, outputs: Path) -> list[str]:
    """The words of a wrong command line, after others that keep it short and away from every other run."""
    words = text.split(" ")
    flags = [word for word in words if word.startswith("-")]
    return [
        *flags,
        *([] if "--cfg" in flags else [*SHORT, f"outputs={outputs}"]),
        *(w for w in words if w not in flags),
    ]


@pytest.mark.parametrize(("text", "fragment"), [*WRONG.items(), *TRIED.items()], ids=str)
def test_a_wrong_command_line_ends_with_one_line_that_names_it(
    text: str, fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_refused(main, command(text, tmp_path / "outputs"), fragment, capfd)
    assert_untrained(tmp_path)
    assert text in TRIED or list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--cfg", "everything"]])
def test_an_option_that_hydra_does_not_have_is_named(flags: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, flags) == 2
    assert flags[-1] in capfd.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(("text", "fragment"), WRONG_IN_A_PROCESS.items(), ids=list(WRONG_IN_A_PROCESS))
def test_a_wrong_command_line_ends_a_process_with_exit_code_2(text: str, fragment: str, tmp_path: Path) -> None:
    words = [*TRAIN, *command(text, tmp_path / "outputs")]
    process = subprocess.run(words, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert process.returncode == 2
    assert_one_line(process.stderr, fragment)
    assert process.stdout == ""
    assert_untrained(tmp_path)


@pytest.mark.parametrize(
    ("hidden", "arguments", "fragment"),
    [
        (
            "envpool",
            ["backend=envpool"],
            "backend=envpool needs envpool, which is not installed: pip install 'ppo-bench[envpool]'",
        ),
        ("torch", [], "framework=torch_eager needs torch, which is not installed: pip install 'ppo-bench[torch]'"),
        ("torch", ["-m", "seed=1,2"], "framework=torch_eager needs torch, which is not installed"),
        ("ale_py", ["env=pong", *GYM], "PongNoFrameskip-v4 on backend=gymnasium needs ale_py, which is not installed"),
        ("brax", ["env=brax_ant", "ppo.num_envs=4"], "brax-ant on backend=device needs brax, which is not installed"),
    ],
    ids=["envpool", "torch", "torch in a sweep", "ale_py", "brax"],
)
def test_a_missing_package_is_named(
    hidden: str,
    arguments: list[str],
    fragment: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == hidden else real(name, *rest))
    assert_refused(main, [*arguments, *SHORT, f"outputs={tmp_path}/outputs"], fragment, capfd)
    assert_untrained(tmp_path)


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_outputs_that_cannot_be_written_are_named(
    below: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    in_the_way = tmp_path / "outputs"
    in_the_way.write_text("a file")
    words = [*GYM, *SHORT, f"outputs={in_the_way}{below}"]
    assert_refused(main, words, f"cannot write to {in_the_way}", capfd)
    assert in_the_way.read_text() == "a file"
