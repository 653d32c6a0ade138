"""Every kind of wrong input ends with exit code 2, one line that says what to change, and no folder."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.processes import TRAIN
from tests.refusals import assert_one_line, assert_untrained
from tests.training import ENVIRONMENT, GYM, SHORT

WRONG = {
    # choices
    "env=cartpol": "unknown env/cartpol; did you mean cartpole",
    "framework=tensorflow": "jax_xla torch_compile torch_eager",
    "backend=gym": "envpool gymnasium",
    "network=resnet": "auto combined gru impala_cnn lstm lstm_cnn minatar_cnn mlp nature_cnn",
    "ppo=default": "atari board classic continuous minatar physics procgen",
    "experiment=cleanrl/dqn": "cleanrl/dqn",
    # pairs
    "framework=torch_eager env=minatar_breakout ppo.num_envs=4": "part of a JAX program: use framework=jax_xla",
    "framework=jax_xla env=pong backend=device": "available with backend=envpool",
    # keys
    "--config-dir=nowhere": "nowhere' not found",
    "tests": "'tests'",
    "ppo.gama=0.9": "unknown key ppo.gama; did you mean gamma?",
    "total_timestep=2048": "did you mean total_timesteps?",
    "network=lstm network.unit=64": "did you mean units?",
    "backend=gymnasium backend.num_threads=2": "unknown key backend.num_threads; choose from",
    "tracker.wandb.mode=offline": "unknown key tracker.wandb",
    "frmework=jax_xla": "did you mean framework",
    "+surprise=1": "unknown key surprise; choose from name seed num_seeds",
    "~ppo.gama": "'ppo.gama' does not exist",
    "~env.ids": "env.ids",
    # types
    "ppo.gamma=high": "ppo.gamma=high: Value 'high'",
    "seed=null": "seed=null: ",
    "rerun=perhaps": "rerun=perhaps: Value 'perhaps'",
    "env.atari=true": "env.atari=True: ",
    "experiment=cleanrl/ppo_atari env=cartpole": "env.atari.episodic_life: ",
    "network=mlp network.hidden_sizes=64": "network.hidden_sizes=64: ",
    "env.ids=[CartPole-v1]": "env.ids",
    # ranges
    "seed=2147483648": "seed=2147483648: must lie between 0 and 2147483647",
    "precision=float16": "precision=float16: choose one of float32, tf32, bfloat16, float64",
    "device=tpu": "device=tpu: choose auto, cpu, cuda or cuda:<i>",
    "name=../elsewhere": "name=../elsewhere: must be a relative path without '..'",
    "outputs=''": "outputs=: must name a folder",
    "checkpoint.fine_tune=true": "checkpoint.fine_tune=true: name the run to begin with by checkpoint.load=RUN_DIR",
    "ppo.num_envs=0": "ppo.num_envs=0: must be at least 1",
    "ppo.learning_rate=inf": "ppo.learning_rate=inf: must be above 0",
    "ppo.adam_eps=nan": "ppo.adam_eps=nan: must be above 0",
    "ppo.gamma=nan": "ppo.gamma=nan: must lie between 0 and 1",
    "ppo.vf_coef=inf": "ppo.vf_coef=inf: must not be negative",
    "framework=torch_compile framework.cudagraphs=perhaps": "framework.cudagraphs=perhaps: choose auto, update, true",
    "framework=torch_compile framework.mode=fast": "framework.mode=fast: choose default or",
    "framework=jax_xla framework.iterations_per_call=2": "framework.iterations_per_call=2 needs environments that are",
    "framework=jax_xla backend=device framework.iterations_per_call=3": "not divide checkpoint.every_iterations=200",
    "framework.num_threads=0": "framework.num_threads=0: must be at least 1, or null",
    "backend=gymnasium backend.vectorization=fork": "backend.vectorization=fork: choose sync or async",
    # what does not go together
    "ppo.num_minibatches=3": "ppo.num_minibatches=3 does not divide the batch of ppo.num_envs x ppo.num_steps = 512",
    "total_timesteps=511": "total_timesteps=511 is less than one iteration of ppo.num_envs x ppo.num_steps = 512",
    "backend=envpool ~env.ids.envpool": "backend=envpool has no env=cartpole; available with backend=device",
    # syntax and interpolations
    "seed=[1": "[1",
    "seed=1,2": "'seed=1,2'",
    "help": "'help'",
    "ppo.gamma=${nothing.here}": "ppo.gamma: Interpolation key 'nothing.here' not found",
    "framework._target_=os.nothing": "'os.nothing'",
    "framework._target_=ppo_bench.common.rows.Rows": "'ppo_bench.common.rows.Rows'",
    # trackers
    "tracker=mlflow": "none tensorboard wandb",
    "tracker=wandb tracker.wandb.mod=offline": "did you mean mode?",
    "tracker=wandb tracker.wandb.mode=off": "tracker.wandb.mode=off: choose online, offline or disabled",
    "tracker=wandb tracker.wandb.tags=one": "tracker.wandb.tags=one: ",
    "tracker=tensorboard +tracker.tensorboard.every=3": "unknown key tracker.tensorboard.every; choose from",
    # Hydra's own flags
    "--cfg job seed=1,2": "'seed=1,2'",
    "-m --cfg job": "Only one of --run, --multirun, --cfg, --info and --shell_completion can be specified",
    "--resolve": "The --resolve flag can only be used in conjunction with --cfg or --help",
    "-m seed=range(1,1)": "seed=range(1,1): there is no such value to sweep over",
    "-m seed=range(1,1) hydra/sweeper=optuna": "seed=range(1,1): there is no such value to sweep over",
    "--config-name=mine": "Cannot find primary config 'mine'",
    "--cfg job ppo.gama=0.9": "did you mean gamma?",
    "network=mlp network.activation=swish": "network.activation=swish: choose one of tanh, relu, leaky_relu, elu, gelu",
    "network=mlp network.hidden_sizes=[64,0]": "network.hidden_sizes=[64, 0]: every size must be at least 1",
    # what shows when environment, network and device are tried, after Hydra has written the configuration
    "network=nature_cnn": "this network takes images, not observations of shape (4,): use network=mlp, lstm or gru",
    "env=breakout backend=envpool ppo.norm_obs=true": "ppo.norm_obs=true is for observations of floats",
    "env=breakout backend=gymnasium env.id=CartPole-v1": "CartPole-v1",
    "device=cuda:64": "device=cuda:64: PyTorch sees ",
    "precision=tf32 device=cpu": "precision=tf32 needs a GPU that has it",
    "backend=envpool env.id=CartPol-v1": "EnvPool has no environment 'CartPol-v1'; did you mean CartPole-v1",
    "env.id=Nothing-v0 backend=gymnasium": "Nothing-v0 on backend=gymnasium raises NameNotFound: ",
    "env.id=nowhere:Env-v0 backend=gymnasium": "nowhere:Env-v0 on backend=gymnasium raises ModuleNotFoundError: ",
    "env.id=ConnectFour-v1 backend=envpool": "is a game of 2 players; set env.players=2",
}

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


@pytest.mark.parametrize(("text", "fragment"), WRONG.items(), ids=list(WRONG))
def test_a_wrong_command_line_ends_with_one_line_that_names_it(
    text: str, fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = exit_code(main, command(text, tmp_path / "outputs"))
    printed = capfd.readouterr()
    assert code == 2
    assert_one_line(printed.err, fragment)
    assert printed.out == ""
    assert_untrained(tmp_path)


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
    code = exit_code(main, [*arguments, *SHORT, f"outputs={tmp_path}/outputs"])
    printed = capfd.readouterr()
    assert code == 2
    assert_one_line(printed.err, fragment)
    assert printed.out == ""
    assert_untrained(tmp_path)


@pytest.mark.parametrize("below", ["", "/deeper"])
def test_outputs_that_cannot_be_written_are_named(
    below: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    in_the_way = tmp_path / "outputs"
    in_the_way.write_text("a file")
    code = exit_code(main, [*GYM, *SHORT, f"outputs={in_the_way}{below}"])
    assert code == 2
    assert_one_line(capfd.readouterr().err, f"cannot write to {in_the_way}")
    assert in_the_way.read_text() == "a file"
