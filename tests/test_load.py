"""`checkpoint.load`: a run of any framework goes on from a checkpoint of any other, as a run of its own."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ppo_bench.__main__ import main
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners import checkpoint
from ppo_bench.runners.checkpoint import Checkpoint, digest, load, load_named, save
from tests.refusals import assert_refused, assert_untrained
from tests.runners import ACTING
from tests.training import flip_a_bit, rows, trained

BATCH, LOADED = 512, 10
RUN = ["env=cartpole", "backend=gymnasium", "device=cpu", "checkpoint.every_iterations=10"]
RUN += [f"total_timesteps={(LOADED + 1) * BATCH}"]
CHECKPOINT = f"checkpoints/iteration_{LOADED:08d}"

RUNS = dict[str, Path]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> RUNS:
    """A run of 11 iterations by PyTorch and by JAX, with a checkpoint after the 10th."""
    outputs = tmp_path_factory.mktemp("runs")
    return {framework: trained(outputs, *RUN, f"framework={framework}") for framework in ACTING}


def learnt(folder: Path) -> Arrays:
    return load(folder / f"checkpoints/iteration_{LOADED + 1:08d}").arrays


def assert_all_go_on_alike(runs: RUNS, outputs: Path, *overrides: str) -> None:
    """Every framework from another's checkpoint, in a circle, with the same next iteration."""
    sources = list(runs)
    for source, target in zip(sources, [*sources[1:], sources[0]], strict=True):
        load_it = f"checkpoint.load={runs[source] / CHECKPOINT}"
        folder = trained(outputs, *RUN, *overrides, f"framework={target}", load_it)
        expected, found = learnt(runs[source]), learnt(folder)
        start = load(runs[source] / CHECKPOINT).arrays
        names = [name for name in expected if name.startswith(("params.", "adam.", "normalize."))]
        assert len(names) > 20
        for name in names:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-6, err_msg=f"{source} {target}")
        # The iteration changed what the tolerance would see.
        moved = max(float(np.abs(expected[name] - start[name]).max()) for name in names if name.startswith("params."))
        assert moved > 1e-4
        (row,) = rows(folder)
        reference = rows(runs[source])[LOADED]
        assert (row["iteration"], row["global_step"]) == (LOADED + 1, (LOADED + 1) * BATCH)
        for key in ("learning_rate", "policy_loss", "value_loss", "entropy", "gradient_norm", "episodic_return"):
            assert row[key] == pytest.approx(reference[key], rel=1e-3, abs=1e-6), (source, target, key)
        first, *_ = rows(folder, "episodes")
        assert first["global_step"] > LOADED * BATCH


def test_every_framework_goes_on_from_anothers_checkpoint(runs: RUNS, tmp_path: Path) -> None:
    assert_all_go_on_alike(runs, tmp_path)


def test_what_the_loaded_run_had_otherwise_is_said(
    runs: RUNS, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_it, activation = f"checkpoint.load={runs['torch_eager'] / CHECKPOINT}", "network.activation=relu"
    trained(tmp_path, *RUN, load_it, activation, "ppo.ent_coef=0.02")
    (note,) = [line for line in capsys.readouterr().err.splitlines() if "note:" in line]
    assert note.endswith(f"the run of {load_it} had network.activation=tanh, ppo.ent_coef=0.01")
    trained(tmp_path, *RUN, load_it)
    assert "note:" not in capsys.readouterr().err


@pytest.mark.slow
def test_every_framework_goes_on_with_anothers_memory_and_algorithm(tmp_path: Path) -> None:
    words = ["network=lstm", "algorithm=rnd", "algorithm.features=16", "algorithm.warm_up_iterations=2"]
    runs = {framework: trained(tmp_path, *RUN, *words, f"framework={framework}") for framework in ACTING}
    assert_all_go_on_alike(runs, tmp_path / "loaded", *words)
    for greedy in ("true", "false"):
        played = []
        for framework in ACTING:
            assert evaluate([str(runs["jax_xla"]), f"framework={framework}", "episodes=4", f"greedy={greedy}"]) == 0
            newest = max((runs["jax_xla"] / "evaluations").glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            played.append(json.loads(newest.read_text())["returns"])
        assert all(returns == played[0] for returns in played)


def test_a_run_goes_on_from_its_own_checkpoint_exactly(runs: RUNS, tmp_path: Path) -> None:
    source = runs["torch_eager"]
    folder = trained(tmp_path, *RUN, f"checkpoint.load={source / CHECKPOINT}")
    assert folder.name == source.name
    assert folder.parent.name != source.parent.name
    expected, found = learnt(source), learnt(folder)
    assert {name: array.tobytes() for name, array in found.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    whole, part = (json.loads((run / "result.json").read_text()) for run in (source, folder))
    assert (whole["loaded_steps"], part["loaded_steps"]) == (0, LOADED * BATCH)
    assert part["global_step"] == whole["global_step"]
    last = rows(source)[-1]
    assert part["masked_fraction"] == pytest.approx(last["masked_fraction"])
    assert part["episodes"] == last["episodes"]
    about = json.loads((folder / "run.json").read_text())["loaded"]
    assert about == {"iteration": LOADED, "arrays_sha256": digest(load(source / CHECKPOINT).arrays)}


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_fine_tuning_begins_anew_with_the_parameters(framework: str, runs: RUNS, tmp_path: Path) -> None:
    """Another shape of the rollout, and steps too small to move the parameters; two epochs of two minibatches."""
    source = runs["torch_eager"]
    words = ["ppo.num_envs=2", "ppo.num_steps=32", "ppo.num_minibatches=2", "ppo.update_epochs=2", "ppo.shards=1"]
    tuned = [f"checkpoint.load={source}", "checkpoint.fine_tune=true", "ppo.learning_rate=1e-30"]
    folder = trained(tmp_path, *RUN, *words, *tuned, "total_timesteps=64", f"framework={framework}")
    before, found = learnt(source), load(folder / "checkpoints/iteration_00000001").arrays
    names = [name for name in before if name.startswith("params.")]
    assert all(before[name].tobytes() == found[name].tobytes() for name in names)
    assert (int(found["iteration"]), int(found["adam.step"])) == (1, 4)
    result = json.loads((folder / "result.json").read_text())
    assert (result["global_step"], result["loaded_steps"]) == (64, 0)
    (row,) = rows(folder)
    assert row["learning_rate"] == 1e-30  # of a schedule that begins


def test_the_content_of_the_checkpoint_is_the_runs_identity_and_its_place_is_not(runs: RUNS, tmp_path: Path) -> None:
    def folder(path: Path | None) -> str:
        return load_config([*RUN, *([f"checkpoint.load={path}"] if path else [])]).run_folder.parent.name

    here, other = runs["torch_eager"], runs["jax_xla"]
    copy = shutil.copytree(here / CHECKPOINT, tmp_path / CHECKPOINT)
    assert folder(here / CHECKPOINT) == folder(copy) == folder(tmp_path)
    changed = load(copy)
    arrays = changed.arrays | {"params.actor.0.bias": changed.arrays["params.actor.0.bias"] + 1}
    save(tmp_path / "changed", LOADED, Checkpoint(arrays, changed.loop))
    names = [folder(path) for path in (None, copy, other / CHECKPOINT, tmp_path / "changed")]
    assert len(set(names)) == 4


def test_the_checkpoint_is_read_once_for_all_runs_of_a_program(runs: RUNS, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Path] = []

    def counted(path: Path) -> Checkpoint:
        calls.append(path)
        return load_named(path)

    monkeypatch.setattr(checkpoint, "load_named", counted)
    words = ["framework=jax_xla", "backend=device", "num_seeds=4", "total_timesteps=100_000"]
    config = load_config([*words, f"checkpoint.load={runs['jax_xla']}"])
    assert len(config.folders) == 4
    assert all(run.source is config.source for run in config.of_each_run())
    assert len(calls) == 1


def test_a_run_resumes_from_its_own_checkpoints_once_it_has_them(
    runs: RUNS, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    load_it = f"checkpoint.load={runs['torch_eager'] / CHECKPOINT}"
    folder = trained(tmp_path, *RUN, load_it)
    (folder / "result.json").unlink()
    capfd.readouterr()
    assert trained(tmp_path, *RUN, load_it) == folder
    assert f"resuming {folder} after iteration {LOADED + 1}" in capfd.readouterr().err
    assert len(rows(folder)) == 1


WRONG = {
    "missing": ([], "has no checkpoint: name a run folder or one of its checkpoints/iteration_<k>"),
    "damaged": ([], "is damaged (the checksum of arrays.safetensors does not match): remove it to"),
    "wider network": (["network=mlp", "network.hidden_sizes=[32]"], "use the network that it was trained with"),
    "a memory": (
        ["network=lstm"],
        "missing: params.memory.bias_hh, params.memory.bias_ih, params.memory.weight_hh, params.memory.weight_ih, "
        "params.trunk.0.bias, params.trunk.0.weight; unexpected: params.actor.1.bias, params.actor.1.weight, "
        "params.actor.2.bias",
    ),
    "at the end": ([f"total_timesteps={LOADED * BATCH + 511}"], "has done 5120 steps, and total_timesteps=5631 leaves"),
    "other iterations": (["ppo.num_envs=8"], "has iterations of 512 steps, and ppo.num_envs x ppo.num_steps = 1024"),
}


@pytest.mark.parametrize(("overrides", "fragment"), WRONG.values(), ids=list(WRONG))
def test_a_checkpoint_that_does_not_fit_is_one_line_and_leaves_nothing(
    overrides: list[str],
    fragment: str,
    request: pytest.FixtureRequest,
    runs: RUNS,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / CHECKPOINT
    if "missing" not in request.node.callspec.id:
        shutil.copytree(runs["torch_eager"] / CHECKPOINT, source)
    if "damaged" in request.node.callspec.id:
        flip_a_bit(source)
    before = sorted(source.rglob("*"))
    words = [*RUN, *overrides, f"checkpoint.load={source}", f"outputs={tmp_path}/outputs"]
    assert_refused(main, words, fragment, capfd)
    assert sorted(source.rglob("*")) == before
    assert_untrained(tmp_path / "outputs")
