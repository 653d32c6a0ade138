"""Observations that are integers: bytes and large numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.testing import assert_allclose

from ppo_bench.commands.interface import train
from ppo_bench.runners import checkpoint


def test_numbers_of_40_bits_reach_jax_as_they_reach_pytorch(tmp_path: Path) -> None:
    words = ["env.id=tests.broken:LargeIntegers-v0", "backend=gymnasium", "device=cpu", f"outputs={tmp_path}"]
    small = ["ppo.num_envs=4", "ppo.num_steps=16", "ppo.num_minibatches=1", "ppo.update_epochs=1"]
    small += ["total_timesteps=64"]
    torch, jax = (
        checkpoint.load_named(checkpoint.find(train([*words, *small, f"framework={framework}"])[0])).arrays
        for framework in ("torch_eager", "jax_xla")
    )
    name = "adam.mean.critic.2.weight"
    largest = np.abs(torch[name]).max()
    assert largest > 0
    assert_allclose(jax[name], torch[name], rtol=0, atol=1e-3 * largest)
