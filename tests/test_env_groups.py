"""Environments in groups that step in turn train what one group trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.envs.groups import GroupedVectorEnv, make_grouped_env
from tests.processes import has_checkpoint, started, wait_until
from tests.runners import composed, played
from tests.training import learnt, run_folder, trained

SMALL = ["env=cartpole", "backend=envpool", "precision=float64", "ppo.num_envs=4", "ppo.num_steps=32"]
CASES = {
    "pendulum": [*SMALL, "env=pendulum"],
    "breakout": [*SMALL, "env=breakout", "ppo.num_envs=6", "ppo.num_steps=6", "ppo.num_minibatches=2"],
    "lstm": [*SMALL, "network=lstm", "env.observe=[0,2]"],
    "trxl": [*SMALL, "network=trxl"],
}


@pytest.mark.parametrize(
    ("framework", "case"),
    [
        *(("torch_eager", case) for case in ("breakout", "pendulum")),
        ("jax_xla", "lstm"),
        *(pytest.param("torch_eager", case, marks=pytest.mark.slow) for case in ("lstm", "trxl")),
        *(pytest.param("jax_xla", case, marks=pytest.mark.slow) for case in ("breakout", "pendulum", "trxl")),
    ],
)
def test_groups_train_what_one_group_trains(framework: str, case: str) -> None:
    words = [*CASES[case], f"framework={framework}", "ppo.norm_obs=false", "ppo.norm_reward=false"]

    def ends(num_groups: int) -> tuple[dict[str, np.ndarray], object]:
        config = composed(*words, f"backend.num_groups={num_groups}")
        env = make_grouped_env(config.backend, config.task)
        assert isinstance(env, GroupedVectorEnv) == (num_groups > 1)
        arrays, _, episodes = played(config.framework.runner(config.training_spec(env)), 3, 4, restart_after=2)
        return arrays, episodes

    (one, episodes), (two, episodes_of_two) = ends(1), ends(2)
    assert episodes_of_two == episodes
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=1e-9, atol=1e-10, err_msg=name)


def test_groups_step_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the policy acts for one group, the other has begun a step and not ended it."""
    config = composed(*SMALL, "backend.num_groups=2")
    env = make_grouped_env(config.backend, config.task)
    assert isinstance(env, GroupedVectorEnv)
    order: list[str] = []
    for k, group in enumerate(env.groups):
        for name in ("step_async", "step_wait"):
            method = getattr(group, name)

            def recorded(*args: object, method=method, said=f"{name} {k}") -> object:  # type: ignore[no-untyped-def]
                order.append(said)
                return method(*args)

            monkeypatch.setattr(group, name, recorded)
    runner = config.framework.runner(config.training_spec(env))
    runner.iterate(runner.init(1))
    runner.close()
    assert order[:6] == ["step_async 0", "step_async 1", "step_wait 0", "step_async 0", "step_wait 1", "step_async 1"]
    assert order[-2:] == ["step_wait 0", "step_wait 1"]


@pytest.mark.slow
def test_a_killed_run_with_groups_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    words = [*SMALL, "backend.num_groups=2", "total_timesteps=12_800", "checkpoint.every_iterations=10"]
    folder = run_folder(*words, f"outputs={tmp_path}")
    with started(*words, f"outputs={tmp_path}") as run:
        wait_until(run, lambda: has_checkpoint(folder))
        run.kill()
        run.communicate(timeout=300)
    assert not (folder / "result.json").exists()
    assert exit_code(main, [*words, f"outputs={tmp_path}"]) == 0
    assert learnt(folder) == learnt(trained(tmp_path / "whole", *words))


def test_the_environments_of_groups_are_those_of_one() -> None:
    config = composed(*SMALL)
    one: Any = make_grouped_env(config.backend, config.task)
    two: Any = make_grouped_env(composed(*SMALL, "backend.num_groups=2").backend, config.task)
    seeds = list(range(4))
    np.testing.assert_array_equal(one.reset(seeds).obs, two.reset(seeds).obs)
    for _ in range(40):
        actions = np.arange(4) % 2
        for mine, theirs in zip(one.step(actions), two.step(actions), strict=True):
            np.testing.assert_array_equal(mine, theirs)
    one.close()
    two.close()
