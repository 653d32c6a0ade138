"""`tuning`: a key that is off disables its optimisation and changes no result; the defaults move no run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners import frameworks, torch
from ppo_bench.runs.distributed import build_runner
from ppo_bench.tuning import jax_convolutions
from ppo_bench.tuning.thread_affinity import FollowerThreads

KEYS = ("keep_freed_memory", "sleep_idle_threads", "follow_caller", "convolve_by_products")
PONG = ["env=pong", "backend=envpool", "device=cpu", "ppo.num_envs=2", "ppo.num_steps=8", "backend.num_threads=1"]


def trained(framework: str, *words: str) -> Arrays:
    """What two iterations of Pong, each of 2 epochs of 2 minibatches, make of the parameters."""
    run = [*PONG, f"framework={framework}", "precision=float64", "total_timesteps=32", *words]
    config = load_config([*run, "ppo.update_epochs=2", "ppo.num_minibatches=2"])
    runner, *_ = build_runner(config, config.framework.runner)
    state = runner.init(1)
    for _ in range(2):
        state, _, _ = runner.iterate(state)
    arrays = runner.export(state)
    runner.close()
    return {name: array for name, array in arrays.items() if name.startswith(("params.", "adam."))}


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_what_is_off_is_not_called_and_changes_no_result(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()

    def note(module: Any, name: str, *, of: str) -> None:
        own = getattr(module, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            called.add(of)
            return own(*arguments, **options)

        monkeypatch.setattr(module, name, noted)

    note(torch, "keep_freed_memory", of="keep_freed_memory")
    note(frameworks, "let_idle_threads_sleep", of="sleep_idle_threads")
    note(FollowerThreads, "pin_to_caller", of="follow_caller")
    note(jax_convolutions, "convolve", of="convolve_by_products")
    of_torch, of_jax = set(KEYS) - {"convolve_by_products"}, {"follow_caller", "convolve_by_products"}
    expected = trained(framework)
    assert called == (of_jax if framework == "jax_xla" else of_torch)
    called.clear()
    found = trained(framework, "tuning=off")
    assert not called
    assert found.keys() == expected.keys()
    for key, array in expected.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-7, atol=1e-9, err_msg=key)


def test_tuning_moves_a_folder_only_where_it_is_not_as_it_comes(tmp_path: Path) -> None:
    words = [f"outputs={tmp_path}"]
    own = load_config(words).run_folder
    assert load_config([*words, *(f"tuning.{key}=true" for key in KEYS)]).run_folder == own
    others = {load_config([*words, f"tuning.{key}=false"]).run_folder for key in KEYS}
    assert len(others - {own}) == len(KEYS)
