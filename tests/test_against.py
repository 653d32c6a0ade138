"""Scripts of CleanRL's beside a training here: the same actions and parameters, and what is not the same is seen."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.commands.equivalence.__main__ import main
from ppo_bench.commands.equivalence.cleanrl.config import arguments_of
from ppo_bench.commands.equivalence.cleanrl.parameter_names import (
    CONTINUOUS,
    FLAX,
    RND,
    SHARED,
    Modules,
    pairs,
    to_ours,
)
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.arrays import Arrays
from tests.refusals import assert_refused
from tests.training import ROOT

SCRIPT = ROOT / "tests" / "like_cleanrl" / "ppo.py"
PRESET = ["experiment=cleanrl/ppo"]
OTHERWISE = ["seed=7", "ppo.num_envs=3", "ppo.num_steps=32", "ppo.num_minibatches=2", "ppo.clip_vloss=false"]
OTHERWISE += ["ppo.norm_adv=false", "ppo.anneal_lr=false", "env.id=Acrobot-v1"]
"""Another seed and other sizes and switches than the preset's, which reach the script too."""


def compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str, script: Path = SCRIPT, code: int = 0
) -> dict[str, Any]:
    """The JSON file of a comparison that ends with `code`."""
    assert exit_code(main, [f"against={script}", *words, f"outputs={tmp_path}"]) == code
    found: dict[str, Any] = json.loads(Path(capsys.readouterr().out.splitlines()[-1]).read_text())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "words"), [("torch_eager", OTHERWISE), ("jax_xla", [])], ids=str)
def test_the_same_ppo_takes_the_same_actions_and_reaches_the_same_parameters(
    framework: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(tmp_path, capsys, *PRESET, f"framework={framework}", *words)
    assert [row["iteration"] for row in found["rows"]] == [1, 2, 3]
    for row in found["rows"]:
        assert row["actions"] == 0
        assert max(row[name] for name in ("movement", "adam_mean", "adam_variance", "losses", "gradient_norm")) < 1e-12


@pytest.mark.slow
def test_a_coefficient_that_is_a_little_off_is_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["framework=torch_eager", "iterations=1", "arguments=['--ent-coef=0.010001']"]
    found = compared(tmp_path, capsys, *PRESET, *words, code=1)
    (row,) = found["rows"]
    assert 1e-9 < row["movement"] < 1e-6
    assert not found["same"]


def test_arguments_follow_from_the_configuration() -> None:
    words = arguments_of(SCRIPT, load_config([*PRESET, "ppo.norm_adv=false", "seed=3"]))
    assert words[:4] == ["--seed", "3", "--env-id", "CartPole-v1"]
    assert "--no-norm-adv" in words
    assert "--target-kl" not in words


HEADS = {"actor.weight": (4, 512), "actor.bias": (4,), "critic.weight": (1, 512), "critic.bias": (1,)}
NATURE = {"network.0.weight": (32, 4, 8, 8), "network.0.bias": (32,), "network.2.weight": (64, 32, 4, 4)}
NATURE |= {"network.2.bias": (64,), "network.4.weight": (64, 64, 3, 3), "network.4.bias": (64,)}
NATURE |= {"network.7.weight": (512, 3136), "network.7.bias": (512,)}


def initial(*names: str) -> Arrays:
    """Parameters here of a small network with these names."""
    shapes = {"trunk.0": (32, 8, 8, 4), "trunk.1": (64, 4, 4, 32), "trunk.2": (64, 3, 3, 64), "trunk.3": (512, 3136)}
    shapes |= {"actor.0": (4, 512), "critic.0": (1, 512)}
    rng = np.random.default_rng(1)
    arrays = {}
    for name in names or shapes:
        arrays[f"params.{name}.weight"] = rng.normal(size=shapes[name])
        arrays[f"params.{name}.bias"] = rng.normal(size=shapes[name][:1])
    return arrays


def test_layouts_lead_there_and_back() -> None:
    arrays = initial()
    found = pairs(SHARED, arrays, NATURE | HEADS)
    there = {pair.theirs: pair.to_theirs(arrays[pair.ours]) for pair in found}
    back = to_ours(found, "params", there)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_array_equal(back[name], array, name)
    x = np.random.default_rng(2).normal(size=(3, 7, 7, 64))  # pixels behind the convolutions
    here = x.reshape(3, -1) @ arrays["params.trunk.3.weight"].T
    assert_allclose(np.moveaxis(x, -1, 1).reshape(3, -1) @ there["network.7.weight"].T, here)


@pytest.mark.parametrize(
    ("modules", "ours", "theirs"),
    [
        (CONTINUOUS, {"actor.log_std": (3,)}, {"actor_logstd": (1, 3)}),
        (FLAX, {"trunk.0.weight": (8, 5, 5, 2)}, {"network_params.Conv_0.kernel": (5, 5, 2, 8)}),
        (FLAX, {"actor.0.weight": (4, 9)}, {"actor_params.Dense_0.kernel": (9, 4)}),
        (RND, {"critic.1.weight": (2, 9)}, {"critic_ext.weight": (1, 9), "critic_int.weight": (1, 9)}),
    ],
    ids=str,
)
def test_layouts_of_single_arrays(
    modules: Modules, ours: dict[str, tuple[int, ...]], theirs: dict[str, tuple[int, ...]]
) -> None:
    arrays = {f"params.{name}": np.random.default_rng(1).normal(size=shape) for name, shape in ours.items()}
    found = pairs(modules, arrays, theirs)
    assert [pair.theirs for pair in found] == list(theirs)
    ((name, back),) = to_ours(found, "params", {p.theirs: p.to_theirs(arrays[p.ours]) for p in found}).items()
    assert_array_equal(back, arrays[name])


def test_a_parameter_without_a_counterpart_is_named() -> None:
    with pytest.raises(ConfigError, match=r"params.actor.0.bias is on one side alone"):
        pairs(SHARED, initial(), {name: shape for name, shape in (NATURE | HEADS).items() if name != "actor.bias"})
    with pytest.raises(ConfigError, match=r"^actor.weight is on one side alone"):
        pairs(SHARED, initial("trunk.0", "trunk.1", "trunk.2", "trunk.3", "critic.0"), NATURE | HEADS)
    with pytest.raises(
        ConfigError, match=r"actor.weight has the shape \[6, 512\], and params.actor.0.weight here \[4, 512\]"
    ):
        pairs(SHARED, initial(), NATURE | HEADS | {"actor.weight": (6, 512)})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["against=nowhere/ppo.py"], "against=nowhere/ppo.py: the file is missing"),
        (
            [f"against={ROOT}/tests/conftest.py"],
            "against=conftest.py: it is not known here; there are ppo",
        ),
        ([f"against={SCRIPT}", "seed=1,2"], "seed: compare with one value after the other"),
        ([f"against={SCRIPT}", "num_seeds=2"], "num_seeds=2 has no meaning here: compare one seed after the other"),
    ],
)
def test_wrong_input_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert_refused(main, [*PRESET, *words], message, capsys)


@pytest.mark.slow
def test_a_script_that_fails_is_named_with_its_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "ppo.py"
    script.write_text(SCRIPT.read_text().replace("    writer = ", "    raise ValueError('no writer')\n    writer = "))
    assert exit_code(main, [f"against={script}", *PRESET, "framework=torch_eager", f"outputs={tmp_path}"]) == 1
    assert capfd.readouterr().err.splitlines()[-1] == "ppo_bench: ppo.py: ValueError: no writer"


SMALL = ["ppo.num_envs=4", "ppo.num_steps=32", "ppo.num_minibatches=2"]
TRXL = [*SMALL, "network.layers=2", "network.dim=64"]
THEIR_SCRIPTS = [
    ("cleanrl/ppo.py", "ppo", []),
    ("cleanrl/ppo_continuous_action.py", "ppo_continuous_action", []),
    ("cleanrl/ppo_continuous_action.py", "ppo_continuous_action", ["ppo.num_envs=4", "ppo.num_steps=256"]),
    ("cleanrl/ppo_atari.py", "ppo_atari", SMALL),
    ("cleanrl/ppo_atari_multigpu.py", "ppo_atari_multigpu", SMALL),
    ("cleanrl/ppo_atari_envpool.py", "ppo_atari_envpool", SMALL),
    ("cleanrl/ppo_atari_envpool_xla_jax.py", "ppo_atari_envpool_xla_jax", SMALL),
    ("cleanrl/ppo_atari_envpool_xla_jax_scan.py", "ppo_atari_envpool_xla_jax_scan", SMALL),
    ("cleanrl/ppo_atari_lstm.py", "ppo_atari_lstm", SMALL),
    ("cleanrl/ppo_pettingzoo_ma_atari.py", "ppo_pettingzoo_ma_atari", SMALL),
    ("cleanrl/ppo_procgen.py", "ppo_procgen", SMALL),
    ("cleanrl/ppo_rnd_envpool.py", "ppo_rnd_envpool", [*SMALL, "algorithm.warm_up_iterations=2"]),
    ("cleanrl/ppo_trxl/ppo_trxl.py", "ppo_trxl", [*TRXL, "ppo.num_steps=256"]),
    ("cleanrl/ppo_trxl/ppo_trxl.py", "ppo_trxl_minigrid", [*TRXL, "ppo.num_steps=128"]),
    ("cleanrl/ppo_trxl/ppo_trxl.py", "ppo_trxl_proof_of_memory", []),
    ("leanrl/ppo_continuous_action_torchcompile.py", "ppo_continuous_action", []),
    ("leanrl/ppo_atari_envpool_torchcompile.py", "ppo_atari_envpool", SMALL),
]
"""Scripts in copies of CleanRL's and LeanRL's repositories, their presets, and sizes that a CPU trains in seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
@pytest.mark.parametrize(("script", "preset", "sizes"), THEIR_SCRIPTS, ids=str)
def test_their_own_scripts_do_the_same(
    script: str, preset: str, sizes: list[str], framework: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = script.partition("/")[0].upper()
    if name not in os.environ:
        pytest.skip(f"{name} names no copy of that repository")
    words = [f"experiment=cleanrl/{preset}", *sizes, f"framework={framework}"]
    if framework == "torch_eager" and "xla" in script:
        words += ["backend=envpool"]
    found = compared(tmp_path, capsys, *words, script=Path(os.environ[name], script))
    assert found["same"]
    with capsys.disabled():
        print(f"\n{script} {preset} {framework}:", *(f"{row['movement']:.1e}" for row in found["rows"]))
    assert torch.get_default_dtype() == torch.float32  # all patches stay in the script's process
