"""Masks of what is legal in `info`: those of environments, and those that wrappers add."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from ppo_bench.common.errors import RunError
from ppo_bench.envs.action_masks import flatten_action_mask
from ppo_bench.envs.base import Task
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.random_play import random_actions
from tests.runners import after_iterations, problem_for
from tests.test_envs import BACKENDS


class Locks(gymnasium.Env[Any, Any]):
    """Three locks of 2, 3 and 2 positions; the position of each lock that was just chosen is not legal now."""

    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    action_space = spaces.MultiDiscrete([2, 3, 2])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.t = 0
        return np.zeros(1, np.float32), self._info(np.array([0, 0, 0]))

    def step(self, action: Any) -> Any:
        assert all(part[choice] for part, choice in zip(self.mask, action, strict=True)), "not legal"
        self.t += 1
        return np.zeros(1, np.float32), 1.0, self.t == 5, False, self._info(action)

    def _info(self, chosen: Any) -> Any:
        self.mask = tuple(np.arange(n) != c for n, c in zip((2, 3, 2), chosen, strict=True))
        return {"action_mask": self.mask}


class Silent(Locks):
    """Locks whose last step tells no mask."""

    def step(self, action: Any) -> Any:
        *given, info = super().step(action)
        return *given, {} if self.t == 5 else info


@pytest.mark.parametrize("env", [Locks, Silent])
def test_no_mask_is_needed_as_an_episode_ends(env: type[Locks], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        gymnasium.registry, "Locks-v0", EnvSpec("Locks-v0", entry_point=lambda **_: env(), disable_env_checker=True)
    )
    locks = BACKENDS["gymnasium-sync"](Task("locks", "Locks-v0", 2))
    policy_input, rng = locks.reset([1, 2]), np.random.default_rng(1)
    for t in range(1, 13):
        policy_input = locks.step(random_actions(locks, rng, policy_input.action_mask)).policy_input
        assert policy_input.action_mask is not None
        assert policy_input.action_mask.sum() == 2 * (7 if t % 6 == 5 else 4), t  # steps 6 and 12 are resets
    locks.close()


def test_environments_with_masks_keep_the_contract_and_are_learnt_from() -> None:
    gymnasium.register("Locks-v0", lambda **_: Locks())
    task = Task("locks", "Locks-v0", 4)
    findings = check_contract(lambda: BACKENDS["gymnasium-sync"](task), 60)
    expected = {"another seed plays otherwise", "environments differ from each other"}  # nothing is random in it
    expected.add("an end shows the episode's last observation, not the next one's first")
    assert {finding.rule for finding in findings if not finding.holds} == expected
    for framework in ("torch_eager", "jax_xla"):
        env = BACKENDS["gymnasium-sync"](task)
        arrays = after_iterations(
            framework, problem_for(env, 2, ["ppo.num_steps=32"]), 2
        )  # an illegal choice would fail
        assert np.isfinite(arrays["params.actor.0.weight"]).all()


class Doors(gymnasium.Env[Any, Any]):
    """Three doors, of which the one chosen last is closed, and a mask that `places` lists the ways of giving."""

    action_space = spaces.Discrete(3)

    def __init__(self, places: str, last_width: int = 3) -> None:
        self._in_info, self._in_obs = "info" in places, "observation" in places
        parts = {"observation": spaces.Box(-1.0, 1.0, (2,), np.float32), "action_mask": spaces.MultiBinary(3)}
        self.observation_space: Any = spaces.Dict(parts) if self._in_obs else parts["observation"]
        self._at_reset = "step" not in places
        self._last_width = last_width
        if "method" in places:
            self.action_masks = lambda: self._mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._t, self._mask = 0, np.array([1, 1, 0], np.int8)
        return self._seen(self._at_reset)

    def step(self, action: Any) -> Any:
        assert self._mask[action] or not self._at_reset, "not legal"
        self._t += 1
        self._mask = (np.arange(3 if self._t < 3 else self._last_width) != action).astype(np.int8)
        obs, info = self._seen(self._in_info)
        return obs, 1.0, self._t == 5, False, info

    def _seen(self, told: bool) -> Any:
        obs = np.zeros(2, np.float32)
        observation = {"observation": obs, "action_mask": self._mask} if self._in_obs else obs
        return observation, {"action_mask": self._mask} if self._in_info and told else {}


@pytest.fixture
def doors(monkeypatch: pytest.MonkeyPatch) -> Task:
    spec = EnvSpec("Doors-v0", entry_point="tests.test_env_masks:Doors", disable_env_checker=True)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    return Task("doors", spec.id, 2)


@pytest.mark.parametrize("places", ["info", "method", "observation"])
@pytest.mark.parametrize("backend", ["gymnasium-sync", "gymnasium-async"])
def test_masks_are_heeded_wherever_they_are(backend: str, places: str, doors: Task) -> None:
    env = BACKENDS[backend](replace(doors, kwargs={"places": places}))
    assert env.masks_actions
    assert env.observation_space.shape == (2,)  # a mask among the observations is no number to learn from
    policy_input, actions = env.reset([1, 2]), np.array([0, 1])
    for t in range(1, 13):
        action_mask = policy_input.action_mask.copy()
        expected = [[True, True, False]] * 2 if t % 6 == 1 else np.arange(3) != actions[:, None]
        np.testing.assert_array_equal(action_mask, np.ones((2, 3)) if t % 6 == 0 else expected)
        actions = np.array([action_mask[0].argmax(), 2 - action_mask[1, ::-1].argmax()])
        policy_input = env.step(actions).policy_input
    env.close()


def test_a_mask_that_reset_lacks_is_refused(doors: Task) -> None:
    env = BACKENDS["gymnasium-sync"](replace(doors, kwargs={"places": "info step"}))
    env.reset([1, 2])
    with pytest.raises(RunError, match=r"info\['action_mask'\] of a step is missing from reset"):
        env.step(np.array([0, 0]))
    env.close()


@pytest.mark.parametrize("places", ["info", "method", "observation"])
@pytest.mark.parametrize("width", [1, 2, 4])
def test_a_mask_whose_width_changes_fails_in_one_line(places: str, width: int, doors: Task) -> None:
    env = BACKENDS["gymnasium-sync"](replace(doors, kwargs={"places": places, "last_width": width}))
    env.reset([1, 2])
    env.step(np.array([0, 0]))
    env.step(np.array([1, 1]))
    with pytest.raises(RunError) as error:
        env.step(np.array([0, 0]))
    env.close()
    assert str(error.value) == (
        f"environment 0 of Doors-v0: its 'action_mask' has {width} entries, and its actions 3 choices"
    )


@pytest.mark.parametrize("mask", [[0.0, -np.inf, 0.0], [0.5, 0.0, 1.0]])
def test_a_mask_of_other_values_than_flags_is_refused(mask: list[float]) -> None:
    with pytest.raises(ValueError, match="has other values than 0 and 1"):
        flatten_action_mask(np.array(mask), spaces.Discrete(3))


def test_a_mask_for_actions_of_floats_is_refused() -> None:
    with pytest.raises(ValueError, match="is for actions that are choices, and its actions are floats"):
        flatten_action_mask(np.ones(2), spaces.Box(-1.0, 1.0, (2,)))
