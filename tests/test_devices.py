"""Devices that share a training: minibatches, their statistics and losses, and running moments. Each part is computed
as on its own device, and the parts must add up to a known total."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import ppo_bench
from ppo_bench.__main__ import main
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics import noise, normalize
from ppo_bench.mathematics.shards import Shard
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.runners.update_functions import UpdateFunctions, make_update_functions
from tests.refusals import assert_refused
from tests.runners import problem_for
from tests.scenes import RandomScenes

OPS = TorchOps(torch.float64, torch.float64)


def update_functions(*overrides: str, devices: int = 1, num_envs: int = 8) -> UpdateFunctions:
    words = [f"devices={devices}", "ppo.num_steps=4", "ppo.num_minibatches=2", *overrides]
    return make_update_functions(problem_for(RandomScenes(num_envs, False, False), 10, words), OPS)


def test_from_python_too_as_many_processes_as_devices_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": 0, "WORLD_SIZE": 4, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29_500}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(ConfigError, match="4 processes were started, and devices=2"):
        ppo_bench.train(["devices=2", "ppo.shards=4"])


def drawn(update_functions: UpdateFunctions, first_row: int = 0) -> np.ndarray:
    """Samples of each minibatch of two epochs, `[E, K, M]`, on the device whose first row that is."""
    seed, iteration = (torch.full((1,), value, dtype=torch.int32) for value in (7, 3))
    samples = torch.from_numpy(update_functions.sample_indices + np.int32(first_row))
    rows: np.ndarray = update_functions.minibatch_indices(
        seed, iteration, torch.arange(2, dtype=torch.int32), samples
    ).numpy()
    return rows


# --- Minibatches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shards", [1, 2, 4])
def test_every_shard_gives_as_many_samples_to_each_minibatch_and_each_sample_once(shards: int) -> None:
    rows = drawn(update_functions(f"ppo.shards={shards}"))
    assert rows.shape == (2, 2, 16)
    envs = rows % 8
    for epoch in range(2):
        assert_array_equal(np.sort(rows[epoch].ravel()), np.arange(32))
        for minibatch in envs[epoch]:
            assert_array_equal(np.bincount(minibatch // (8 // shards), minlength=shards), [16 // shards] * shards)
    assert not np.array_equal(rows[0], rows[1])


def test_shards_are_shuffled_independently() -> None:
    rows = drawn(update_functions("ppo.shards=2"))
    first, second = rows.reshape(2, 2, 2, 8).swapaxes(0, 2).reshape(2, -1)
    places = [shard // 8 * 4 + shard % 4 for shard in (first, second)]
    assert not np.array_equal(*places)


def test_a_process_resets_its_environments_by_their_own_seeds() -> None:
    spec, seeds = problem_for(RandomScenes(8, False, False), 10, []), noise.env_seeds(5, 3, 8)
    parts = [dataclasses.replace(spec, shard=Shard(k, 2)).env_seeds(5, 3) for k in range(2)]
    assert parts == [seeds[:4], seeds[4:]]


def test_advantages_of_sequences_are_normalised_within_their_shard() -> None:
    """The loss is that of advantages normalised beforehand."""
    shards, rng = ["ppo.shards=2", "network=gru"], np.random.default_rng(0)
    by_shard, raw = (
        update_functions(*shards, f"ppo.{switch}") for switch in ("norm_adv_by_shard=true", "norm_adv=false")
    )
    weights = initial_weights(raw.network.parameters, 1)
    params = {name: torch.from_numpy(array).double() for name, array in weights.items()}
    names = ("log_probs", "values", "advantages", "returns", "obs")
    batch = {name: torch.from_numpy(rng.normal(size=(4, 8, 5)[: 2 + (name == "obs")])) for name in names}
    batch |= {f"mask.{name}": torch.ones(4, 8).double() for name in ("value", "policy")}
    batch |= {"episode_start": torch.zeros(4, 8).double()}
    batch |= {"actions": torch.zeros(4, 8).long()}
    batch |= {f"carry.{c.name}": torch.zeros(8, *c.shape).double() for c in raw.network.carry}
    parts = batch["advantages"].split(4, 1)
    normalised = torch.cat([(part - part.mean()) / (part.std(unbiased=False) + 1e-8) for part in parts], 1)
    rows = torch.arange(8, dtype=torch.int32)

    def loss(update_functions: UpdateFunctions, batch: Any) -> torch.Tensor:
        ((weights,),) = update_functions.weights(batch, rows[None, None])
        return update_functions.loss(params, update_functions.minibatch(batch, rows, weights))[0]

    assert_allclose(loss(by_shard, batch), loss(raw, batch | {"advantages": normalised}), rtol=1e-12)


# --- What is summed over devices --------------------------------------------------------------------------------------


def on_two_devices(function: Any, *arrays: np.ndarray) -> Any:
    """`function(total, *parts)` by two devices, `total` the sum over them; each gets half of `arrays` along axis 0."""
    total = functools.partial(jax.lax.psum, axis_name="devices")
    with jax.enable_x64(True):
        halves = [jnp.stack(jnp.split(jnp.asarray(array), 2)) for array in arrays]
        return jax.vmap(functools.partial(function, total), axis_name="devices")(*halves)


@pytest.mark.parametrize("masked", [False, True])
def test_pooled_moments_are_those_of_all_entries(masked: bool) -> None:
    rng = np.random.default_rng(3)
    entries, mask = rng.normal(1e3, 1, (10, 3)), np.array([1, 0, 1, 1, 0, 1, 1, 1, 1, 0.0])
    gather = functools.partial(jax.lax.all_gather, axis_name="devices")

    def part(_: Any, entries: Any, mask: Any) -> Any:
        return normalize.pool_moments(jnp, normalize.moments(jnp, entries, mask if masked else None), gather)

    mean, m2, count = on_two_devices(part, entries, mask)
    kept = entries[mask == 1] if masked else entries
    for device in range(2):
        assert_allclose(mean[device], kept.mean(0), rtol=1e-13)
        assert_allclose(m2[device], kept.var(0) * len(kept), rtol=1e-9)
        assert count[device].shape == ()
        assert float(count[device]) == len(kept)


def test_advantages_are_normalised_by_shard_where_that_is_asked_for() -> None:
    made = update_functions("ppo.shards=2", "ppo.norm_adv_by_shard=true")
    advantages, mask = torch.tensor([[1.0, 3.0, 5.0, 9.0], [1.0, 1.0, 1.0, 0.0]]).double()
    assert_allclose(made._normalize_by_shard(advantages[None], mask[None])[0, :3], [-1, 1, 0], atol=1e-7)


# --- Wrong input ------------------------------------------------------------------------------------------------------


def test_more_devices_than_cores_are_one_line() -> None:
    words = ["devices=64", "ppo.shards=64", "ppo.num_envs=64", "device=cpu"]
    with pytest.raises(
        ConfigError, match=r"devices=64: each takes a core of a CPU, and there are \d+; use at most \d+"
    ):
        load_config(words).require()


def test_minibatches_that_shards_cannot_fill_equally_are_one_line() -> None:
    words = ["ppo.shards=2", "network=gru", "ppo.num_minibatches=4"]
    with pytest.raises(
        ConfigError, match=r"num_minibatches=4 does not divide 2, which is ppo\.num_envs / ppo\.shards=2"
    ):
        problem_for(RandomScenes(4, False, False), 1, words)


TWO = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (TWO | {"RANK": "-1"}, "RANK=-1: a launcher sets it to a whole number"),
        (TWO | {"RANK": "2"}, "RANK=2 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2: expected a rank below"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, "set MASTER_ADDR and MASTER_PORT, too"),
    ],
)
def test_a_launchers_variables_that_make_no_sense_are_one_line(
    variables: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    words = ["env=cartpole", "devices=2", "ppo.shards=2", "device=cpu", f"outputs={tmp_path}"]
    assert_refused(main, words, said, capfd)
