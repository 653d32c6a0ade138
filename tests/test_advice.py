"""Warnings and default choices for configurations that would silently train badly, and rescaled actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.distributions import ActionBounds, action_bounds
from ppo_bench.runners.host_envs import HostEnvs
from ppo_bench.runs.advice import advice
from tests.runners import problem_for
from tests.scripted import Script, begun, collect

FAR = "env.wrappers=[{_target_:gymnasium.wrappers.RescaleAction,min_action:-50,max_action:50}]"


def said(*overrides: str) -> list[str]:
    config = load_config(overrides)
    env = config.backend.make(config.task)
    try:
        return list(advice(config, env))
    finally:
        env.close()


@pytest.mark.parametrize(
    ("overrides", "every", "times"),
    [
        (["env=breakout", "ppo.num_envs=2"], "64,000", "2.4"),
        (["env=breakout", "backend=gymnasium", "ppo.num_envs=1"], "64,000", "2.4"),
        (["env=cartpole", "checkpoint.every_iterations=39"], "4,992", "10.0"),
        (["env=cartpole", "backend=envpool", "checkpoint.every_iterations=39"], "4,992", "10.0"),
        (["env=minatar_breakout"], "32,000", "3.2"),
    ],
)
def test_restarts_that_cut_many_episodes_are_warned_of(overrides: list[str], every: str, times: str) -> None:
    (line,) = said(*overrides)
    assert f"restarts the environments every {every} steps, {times} times the limit of an episode" in line


@pytest.mark.parametrize(
    "overrides",
    [
        ["env=cartpole"],
        ["env=cartpole", "checkpoint.every_iterations=40"],
        ["env=hopper"],
        ["env=brax_ant"],
        ["env=tic_tac_toe", "backend=envpool"],  # whose episodes have no limit
        ["env=tic_tac_toe", "backend=device", "checkpoint.every_iterations=1"],
        ["env=breakout", "total_timesteps=512000"],  # one window in all: nothing restarts
    ],
)
def test_nothing_is_said_of_what_is_well(overrides: list[str]) -> None:
    assert said(*overrides) == []


def test_actions_far_from_the_scale_of_a_new_policy_are_warned_of() -> None:
    pendulum = ["env=pendulum", FAR]
    (line,) = said(*pendulum)
    assert "lie between -50 and 50" in line
    assert "env.rescale_actions=true" in line
    assert said(*pendulum, "env.rescale_actions=true") == []


def test_values_of_final_states_that_reset_steps_spoil_are_warned_of() -> None:
    (line,) = said("env=pendulum", "env.rescale_actions=true", "ppo.mask_resets=false")
    assert "make both true, or both false" in line
    both = ("ppo.mask_resets=false", "ppo.bootstrap_truncated=false")
    assert said("env=pendulum", "env.rescale_actions=true", *both) == []


class Small(gymnasium.Env[Any, np.int64]):
    """An environment that shows images of 20 x 20."""

    observation_space = spaces.Box(0, 255, (20, 20, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return self._observe(), 0.0, False, False, {}

    def _observe(self) -> Any:
        return np.zeros(self.observation_space.shape or (), self.observation_space.dtype)


gymnasium.register("Small-v0", "tests.test_advice:Small")


def test_images_too_small_for_convolutions_are_warned_of() -> None:
    words = ("env.id=tests.test_advice:Small-v0", "env=cartpole")
    (line,) = said(*words)
    assert "have arrays (20, 20, 3), laid out as one vector for an MLP" in line
    assert "network=impala_cnn takes smaller ones" in line
    assert said(*words, "network=impala_cnn") == []


def test_steps_that_whole_iterations_leave_out_are_warned_of() -> None:
    (line,) = said("total_timesteps=1000")
    assert "total_timesteps=1000 is rounded down to 512: iterations have 512 steps" in line
    assert said("total_timesteps=10_300") == []  # 60 of these are left out


def test_actions_are_clipped_or_stretched_to_their_bounds() -> None:
    low, high = np.array([-50.0, 0.0], np.float32), np.array([50.0, 8.0], np.float32)
    actions = np.array([[-1.0, -1.0], [0.5, 0.0], [3.0, 1.0], [-70.0, 9.0]], np.float32)
    for xp in (np, jnp):
        clipped = ActionBounds(low, high, rescaled=False).to_env_actions(xp, actions)
        assert_array_equal(clipped, [[-1, 0], [0.5, 0], [3, 1], [-50, 8]])
        stretched = ActionBounds(low, high, rescaled=True).to_env_actions(xp, actions)
        assert_array_equal(stretched, [[-50, 0], [25, 4], [50, 8], [-50, 8]])
        assert np.asarray(stretched).dtype == np.float32


def test_what_is_stretched_stays_within_the_bounds() -> None:
    """Rounding puts -3 + 2 x (0.5 x 3.2) above 0.2 in float32."""
    space = spaces.Box(np.float32(-3.0), np.float32(0.2), (1,), np.float32)
    for xp in (np, jnp):
        stretched = ActionBounds(space.low, space.high, rescaled=True).to_env_actions(xp, np.ones((1, 1), np.float32))
        assert_array_equal(stretched, [space.high])


def test_environments_are_given_what_is_stretched() -> None:
    env = Script(obs=[[0, 0]] * 2)
    env.action_space = spaces.Box(np.array([-4, 0], np.float32), np.array([4, 2], np.float32))
    overrides = ["ppo.num_steps=1", "ppo.num_minibatches=1", "env.rescale_actions=true"]
    envs = HostEnvs(problem_for(env, 1, overrides))
    collect(envs, begun(envs), lambda t, policy_input: np.array([[-1, 0.5], [0.25, 7]], np.float32))
    assert_array_equal(env.actions, [[[-4, 1.5], [1, 2]]])


@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(-np.inf, np.inf, (2,))])
def test_what_has_no_bounds_cannot_be_rescaled(space: spaces.Space) -> None:
    with pytest.raises(ConfigError, match=r"env\.rescale_actions=true is for actions of floats with bounds"):
        action_bounds(space, rescaled=True)


def test_an_id_whose_actions_are_floats_is_told_of_the_numbers_for_them(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["env.id=Pendulum-v1", f"outputs={tmp_path}", "checkpoint.every_iterations=50"]
    for chosen, told in (("ppo=classic", True), ("ppo=continuous", False)):
        assert exit_code(main, [*words, chosen, "total_timesteps=2048"]) == 0
        assert ("Pendulum-v1 has actions of floats" in capfd.readouterr().err) == told
