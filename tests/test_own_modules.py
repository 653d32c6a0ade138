"""Modules of a user's as networks: docs/own-modules.md as it stands, and what is refused."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.runners.checkpoint import load_named
from tests.refusals import assert_one_line
from tests.training import ENVIRONMENT, ROOT, rows, trained
from tests.user_networks import NETS

PAGE = (ROOT / "docs" / "own-modules.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```bash\n(.*?)```", PAGE, re.S)[0].splitlines()
(CLASSES,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
NAMES = {f"{part}.{mine}": f"{part}.{theirs}" for part in ("policy", "value") for mine, theirs in
         (("kernel", "weight"), ("bias", "bias"))}  # fmt: skip

BOTH = ["network.torch=nets.Plain", "network.flax=nets.FlaxPlain", "framework=jax_xla"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the page's files and with `nets.py`, where Python finds modules."""
    (tmp_path / "mine.py").write_text(CLASSES)
    (tmp_path / "nets.py").write_text(NETS)
    for name, text in re.findall(r"`(my_conf/[\w/.]+)`\n\n```yaml\n(.*?)```", PAGE, re.S):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mine", "nets"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def run(*words: str) -> str:
    """The last line that a command prints. It ends well."""
    ended = subprocess.run([sys.executable, *words], env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line: str, here: Path) -> None:
    words = shlex.split(line)[1:]
    if words[1] == "ppo_bench.equivalence":  # the line before trains by torch_compile
        words.append("framework=torch_eager,jax_xla")
    said = run(*words, "outputs=o")
    if words[1] == "ppo_bench":
        returns = [row["episodic_return"] for row in rows(here / said) if row["episodic_return"]]
        assert returns[0] < 6  # random play has 5 of 10
        assert returns[-1] > 8
    else:
        assert "the frameworks do the same" in said


def test_the_parameters_are_the_modules_own_and_start_as_it_makes_them(here: Path) -> None:
    words = ["network=own", "network.torch=nets.Plain", "device=cpu", "total_timesteps=512", "ppo.learning_rate=1e-30"]
    assert exit_code(main, [*words, "seed=7", "outputs=o"]) == 0
    (file,) = here.glob("o/*/*/*/checkpoints/iteration_*/*.safetensors")
    nets: Any = importlib.import_module("nets")

    config = load_config(words)
    made = config.backend.make(config.task)
    torch.manual_seed(7)
    module = nets.Plain(made.observation_space, made.action_space)
    made.close()
    arrays = load_file(file)
    for name, parameter in module.state_dict().items():
        np.testing.assert_allclose(arrays[f"params.{name}"], parameter.numpy(), atol=1e-25)


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_both_modules_compute_the_same_from_one_set_of_parameters(framework: str, here: Path) -> None:
    names = ",".join(f"{mine}:{theirs}" for mine, theirs in NAMES.items())
    words = ["network=own", "network.torch=nets.Plain", "network.flax=nets.FlaxPlain", f"++network.names={{{names}}}"]
    words += [f"framework={framework}", "device=cpu", "precision=float64", "total_timesteps=1024", "outputs=o"]
    assert exit_code(main, words) == 0
    alone = ["network=own", "network.torch=nets.Plain", "framework=torch_eager", *words[5:]]
    assert exit_code(main, alone) == 0
    folders = {json.loads(p.read_text())["config"]["network"]["flax"]: p.parent for p in here.glob("o/*/*/*/run.json")}
    one, other = (load_named(folders[flax] / "checkpoints").arrays for flax in (None, "nets.FlaxPlain"))
    for name in (name for name in one if name.startswith("params.")):
        np.testing.assert_allclose(one[name], other[name], rtol=1e-10, atol=1e-13)


def test_layers_of_flax_may_have_dots_in_their_names(here: Path) -> None:
    words = ["network=own", "network.flax=nets.FlaxDotted", "framework=jax_xla", "device=cpu", "total_timesteps=512"]
    assert exit_code(main, [*words, "outputs=o"]) == 0
    (file,) = here.glob("o/*/*/*/checkpoints/iteration_*/*.safetensors")
    assert load_file(file)["params.trunk.0.kernel"].shape == (4, 8)


@pytest.mark.slow
def test_a_memory_is_kept_over_steps_and_cleared_between_episodes(here: Path) -> None:
    words = ["network=own", "network.torch=nets.Remembering", "device=cpu", "total_timesteps=1024"]
    config = load_config(words)
    made = config.backend.make(config.task)
    network = config.network_for(made)
    made.close()
    assert [(carry.name, carry.shape) for carry in network.carry] == [("hidden", (16,))]
    assert network.learns_from_sequences
    for precision in ("float32", "bfloat16"):
        folder = trained(Path("o"), *words, f"precision={precision}")
    assert exit_code(evaluate, [str(folder), "episodes=1"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "network=own: name a module"),
        (["network.torch=nets.Buffered"], "network.torch=nets.Buffered: scale is a buffer"),
        (["network.torch=nets.Frozen"], "network.torch=nets.Frozen: value.weight is a buffer, another tensor"),
        (
            ["network.torch=nets.Dropping"],
            "nets.Dropping returns other outputs for the same observation in another batch",
        ),
        (
            ["network.torch=nets.Batched"],
            "nets.Batched returns other outputs for the same observation in another batch",
        ),
        (["network.torch=nets.Scaled"], "network.torch=nets.Scaled: scale is a buffer, another tensor"),
        (["network.torch=nets.FlaxPlain"], "network.torch=nets.FlaxPlain is no torch.Module"),
        (["network.torch=nets.Plain", "env.id=Pendulum-v1"], "nets.Plain raises AttributeError"),
        (["network.flax=nets.FlaxBatch", "framework=jax_xla"], "batch_stats are variables that a run does not keep"),
        (["network.torch=nets.Plain", "framework=jax_xla"], "network.flax=null"),
        (BOTH, "network.names: policy"),
        (["network.torch=nets.Plain", "algorithm=rnd"], "network=own: the algorithm learns 2 values"),
        (["network.torch=nets.NoValue"], "NoValue returns Tensor for two observations: expected (logits [2, 2], value"),
        (["network.torch=nets.Ones"], "nets.Ones: initial_carry returns arrays of zeros by name"),
        (["network.torch=nets.Renaming"], "returns the carry {'state': (2, 16)} for two observations: expected {'hid"),
        (
            ["network.torch=nets.ForABatch"],
            "nets.ForABatch raises TypeError: ForABatch.initial_carry() missing 1 required",
        ),
        (["network.torch=nets.Tupled"], "returns the carry tuple for two observations: expected {'hidden': (2, 16)}"),
        (
            ["network.torch=nets.Remembering", "network.flax=nets.FlaxRemembering", "framework=jax_xla"],
            "has the carry {'state': (16,)}, and network.torch=nets.Remembering {'hidden': (16,)}: give both the same",
        ),
        (
            [*BOTH, f"++network.names={{{','.join(f'{a}:{b}' for a, b in NAMES.items())},more.bias:value.bias}}"],
            "network.names: more.bias is not the name of a parameter of network.flax",
        ),
        (["network.torch=nets.Lazy"], "nets.Lazy: lazy layers have no shapes yet"),
        (["network.torch=nets.Constant"], "nets.Constant has no parameters to train"),
        (["network.torch=nets.Wide"], "Wide returns arrays of shapes [(2, 2), (2, 2)] for two observations"),
    ],
)
def test_what_cannot_be_trained_is_said_in_a_line(
    words: list[str], said: str, here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(main, ["network=own", *words, "device=cpu", "total_timesteps=1024", "outputs=o"]) == 2
    assert_one_line("\n".join(capfd.readouterr().err.splitlines()[-1:]) + "\n", said)


def test_a_missing_library_of_a_second_module_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(["network=own", *BOTH, "framework=torch_eager"])
    made = config.backend.make(config.task)
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "flax" else real(name, *rest))
    with pytest.raises(
        ConfigError, match=r"network.flax=nets.FlaxPlain needs flax, .*: pip install 'ppo-bench\[jax\]'"
    ):
        config.network_for(made)
    made.close()


def test_changed_code_of_a_module_is_another_experiment(here: Path) -> None:
    words = ["network=own", "network.torch=nets.Plain"]
    before = load_config(words).run_folder
    assert load_config(words).run_folder == before
    (here / "nets.py").write_text(NETS + "\nMORE = 1\n")
    assert load_config(words).run_folder != before


def test_a_name_for_a_parameter_of_another_shape_is_refused(here: Path) -> None:
    names: dict[str, Any] = NAMES | {"policy.kernel": "value.weight"}
    from ppo_bench.networks.own import Own

    config = load_config([])
    made = config.backend.make(config.task)
    network = Own("nets.Plain", "nets.FlaxPlain", names).build(made.observation_space, made.action_space)
    made.close()
    network.require("torch")
    with pytest.raises(ConfigError, match=re.escape("network.names: policy.kernel has shape (4, 2)")):
        network.require("flax")


def test_a_choice_is_seen_as_its_one_hot_vector(here: Path) -> None:
    words = ["env.id=FrozenLake-v1", "network=own", "network.torch=nets.Plain", "device=cpu"]
    assert exit_code(main, [*words, "total_timesteps=1024", "outputs=o"]) == 0
