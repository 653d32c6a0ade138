"""Environments in groups that step in turn train what one group trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Task
from ppo_bench.envs.envpool import EnvPoolBackend, EnvPoolEnv
from ppo_bench.envs.groups import GroupedVectorEnv, make_grouped_env
from ppo_bench.envs.host import VectorEnvWrapper
from ppo_bench.runs.distributed import build_runner
from tests.processes import has_checkpoint, started, wait_until
from tests.runners import composed, played
from tests.training import learnt, run_folder, trained

SMALL = ["env=cartpole", "backend=envpool", "precision=float64", "ppo.num_envs=4", "ppo.num_steps=32"]
CASES = {
    "pendulum": [*SMALL, "env=pendulum", "env.kwargs={max_episode_steps:20}"],
    "othello": [*SMALL, "env=othello", "ppo.num_envs=8", "ppo.num_steps=64"],
    "breakout": [*SMALL, "env=breakout", "ppo.num_envs=6", "ppo.num_steps=6", "ppo.num_minibatches=2"],
    "lstm": [*SMALL, "network=lstm", "env.observe=[0,2]"],
    "trxl": [*SMALL, "network=trxl"],
}


def assert_groups_train_what_one_group_trains(framework: str, case: str, device: str) -> None:
    words = [*CASES[case], f"framework={framework}", f"device={device}", "ppo.norm_obs=false", "ppo.norm_reward=false"]

    def ends(num_groups: int) -> tuple[dict[str, np.ndarray], object]:
        config = composed(*words, f"backend.num_groups={num_groups}")
        runner, env = build_runner(config, config.framework.runner)
        assert isinstance(env, GroupedVectorEnv) == (num_groups > 1)
        arrays, _, episodes = played(runner, 3, 4, restart_after=2)
        assert episodes or "breakout" in case
        return arrays, episodes

    (one, episodes), (two, episodes_of_two) = ends(1), ends(2)
    assert episodes_of_two == episodes
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(
    ("framework", "case"),
    [
        *(("torch_eager", case) for case in ("breakout", "pendulum")),
        ("jax_xla", "lstm"),
        *(pytest.param("torch_eager", case, marks=pytest.mark.slow) for case in ("lstm", "trxl", "othello")),
        *(
            pytest.param("jax_xla", case, marks=pytest.mark.slow)
            for case in ("breakout", "pendulum", "trxl", "othello")
        ),
    ],
)
def test_groups_train_what_one_group_trains(framework: str, case: str) -> None:
    assert_groups_train_what_one_group_trains(framework, case, "cpu")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("case", ["breakout", "lstm"])
def test_recorded_graphs_act_for_each_group(case: str) -> None:
    assert_groups_train_what_one_group_trains("torch_compile", case, "cuda")


def test_groups_step_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the policy acts for one group, the other has begun a step and not ended it."""
    config = composed(*SMALL, "backend.num_groups=2")
    runner, env = build_runner(config, config.framework.runner)
    assert isinstance(env, GroupedVectorEnv)
    order: list[str] = []
    for k, group in enumerate(env.groups):
        for name in ("step_async", "step_wait"):
            method = getattr(group, name)

            def recorded(*args: object, method=method, said=f"{name} {k}") -> object:  # type: ignore[no-untyped-def]
                order.append(said)
                return method(*args)

            monkeypatch.setattr(group, name, recorded)
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


class Doubles(VectorEnvWrapper):
    """Changes a step, and not its halves."""


class WrappedBackend:
    in_graph: ClassVar[bool] = False
    vmappable: ClassVar[bool] = False
    name = "envpool"

    def make(self, task: Task) -> Any:
        return Doubles(EnvPoolBackend("envpool", 0).make(task))


@pytest.mark.parametrize("observe", [(), (0, 2)])
def test_environments_whose_step_has_no_halves_are_refused(observe: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="these environments have no step_async and step_wait"):
        make_grouped_env(WrappedBackend(), Task("x", "CartPole-v1", 4, observe=observe), 2)


@pytest.mark.parametrize(("num_groups", "follows"), [(1, True), (2, False)])
def test_a_single_thread_follows_the_training_only_if_it_waits(num_groups: int, follows: bool) -> None:
    env = EnvPoolBackend("envpool", 1, num_groups).make(Task("x", "CartPole-v1", 4))
    assert isinstance(env, EnvPoolEnv)
    assert env._follows == follows
    env.close()
