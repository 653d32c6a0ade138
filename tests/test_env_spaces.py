"""Spaces, packages and vectorizations that backends take or refuse."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from numpy.testing import assert_allclose

from ppo_bench.commands.interface import train
from ppo_bench.envs.base import Task
from ppo_bench.envs.gymnasium import GymnasiumBackend
from ppo_bench.envs.observation_flattening import dropped_texts
from ppo_bench.runners import checkpoint
from tests.test_envs import BACKENDS, refusal
from tests.training import trained


class Spaces(gymnasium.Env[Any, Any]):
    """Nothing but spaces, and zeros."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def __init__(self, action_space: spaces.Space[Any]) -> None:
        self.action_space = action_space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        return np.zeros(2, np.float32), 0.0, False, False, {}


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[spaces.Space[Any]], Task]:
    """Registers an environment with these actions for as long as the test runs."""

    def add(action_space: spaces.Space[Any]) -> Task:
        spec = EnvSpec("Spaces-v0", entry_point=lambda **_: Spaces(action_space), disable_env_checker=True)
        monkeypatch.setitem(gymnasium.registry, spec.id, spec)
        return Task("spaces", spec.id, 1)

    return add


@pytest.mark.parametrize(
    "action_space",
    [
        spaces.Box(-1.0, 1.0, (2,), np.float32),
        spaces.Box(-1.0, 1.0, (2,), np.float16),
        spaces.MultiDiscrete([2, 3], dtype=np.int32),
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_are_members_of_their_space(
    register: Callable[[spaces.Space[Any]], Task], action_space: spaces.Space[Any], dtype: type
) -> None:
    """Policies compute in another dtype; the environment asserts what it is given."""
    env = GymnasiumBackend("gymnasium", "sync").make(register(action_space))
    env.reset([1])
    actions = np.array([[0.1, 0.9]], dtype) if isinstance(action_space, spaces.Box) else np.array([[1, 2]])
    env.step(actions)
    env.close()


@pytest.mark.parametrize(
    "action_space",
    [
        spaces.MultiDiscrete(np.array([[2, 3], [2, 3]])),
        spaces.Box(-1.0, 1.0, (2, 2), np.float32),
        spaces.Box(0, 5, (2,), np.int64),
        spaces.Text(5),
    ],
    ids=["choices in a matrix", "matrix", "integers", "text"],
)
def test_actions_other_than_choices_or_one_vector_are_refused(
    register: Callable[[spaces.Space[Any]], Task], action_space: spaces.Space[Any]
) -> None:
    message = refusal(BACKENDS["gymnasium-sync"], register(action_space))
    assert message.startswith("Spaces-v0: actions ")
    assert message.endswith("MultiDiscrete and MultiBinary of one dimension, and vectors of floats")


def test_choices_that_do_not_start_at_0_are_refused(register: Callable[[spaces.Space[Any]], Task]) -> None:
    message = refusal(BACKENDS["gymnasium-sync"], register(spaces.Discrete(3, start=5)))
    assert message == "Spaces-v0: discrete actions must start at 0, not at 5"
    message = refusal(BACKENDS["gymnasium-sync"], register(spaces.MultiDiscrete([2, 3], start=[-1, 0])))
    assert message == "Spaces-v0: discrete actions must start at 0, not at -1"


def test_arrays_of_jax_are_observations() -> None:
    BACKENDS["gymnasium-sync"](Task("x", "phys2d/CartPole-v1", 2)).close()


LINE, WIDE = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(-2.0, 2.0, (2,), np.float32)


@pytest.mark.parametrize("backend", ["gymnasium-sync", "gymnasium-async"])
@pytest.mark.parametrize(("kind", "space", "other"), [("observation", LINE, WIDE), ("action", LINE, WIDE)], ids=str)
def test_environments_with_different_spaces_are_refused(
    register: Callable[[spaces.Space[Any]], Task], backend: str, kind: str, space: Any, other: Any
) -> None:
    built = itertools.count()

    def entry(**_: Any) -> Spaces:
        worker = multiprocessing.current_process().name  # in this process, the third one is environment 1
        is_second = worker.endswith("-1") if "Worker" in worker else next(built) == 2
        env = Spaces(spaces.Discrete(2))
        setattr(env, f"{kind}_space", other if is_second else space)
        env.reset = lambda **_: (env.observation_space.sample(), {})  # type: ignore[method-assign]
        return env

    task = dataclasses.replace(register(LINE), num_envs=3)
    gymnasium.registry[task.id].entry_point = entry
    message = refusal(BACKENDS[backend], task)
    assert message.startswith("Spaces-v0: ")
    assert f"{kind} space" in message


class Spoken(gymnasium.Env[Any, Any]):
    """Two numbers, a choice and texts, of gymnasium's kind and of a user's own; or nothing but a text."""

    action_space = spaces.Discrete(2)

    def __init__(self, only_text: bool = False) -> None:
        own: Any = spaces.Space((), str)  # as MiniGrid's missions are: gymnasium cannot flatten it
        hint = spaces.Tuple([spaces.Text(40), spaces.Discrete(2)])
        parts = {"at": spaces.Box(-1.0, 1.0, (2,), np.float32), "goal": own, "hint": hint}
        self.observation_space: Any = spaces.Text(40) if only_text else spaces.Dict(parts)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        return self._seen(), 1.0, False, False, {}

    def _seen(self) -> Any:
        at = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return {"at": at, "goal": "go to the door", "hint": ("it is red", 1)}


@pytest.mark.parametrize("backend", ["gymnasium-sync", "gymnasium-async"])
def test_texts_among_observations_are_left_out(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = EnvSpec("Spoken-v0", entry_point=f"{__name__}:Spoken", disable_env_checker=True)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    env: Any = BACKENDS[backend](Task("spoken", spec.id, 2))
    assert dropped_texts(env.observation_space) == ["goal", "hint:0"]
    first = env.reset([1, 2]).obs.copy()
    env.close()
    assert first.shape == (2, 4)
    np.testing.assert_array_equal(first[:, 2:], [[0, 1]] * 2)
    parts = {"at": first[:, :2], "goal": ("a", "b"), "hint": (("c", "d"), np.array([1, 1]))}
    np.testing.assert_array_equal(env.observation_space.flatten(parts), first)
    del parts["goal"]
    np.testing.assert_array_equal(env.observation_space.flatten(parts), first)
    only = dataclasses.replace(Task("spoken", spec.id, 2), kwargs={"only_text": True})
    assert refusal(BACKENDS[backend], only) == (
        "Spoken-v0: observations of kind Text are not supported here, only those that can be laid out as one array"
    )


def test_a_training_says_which_texts_its_policy_does_not_see(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    id_ = "minigrid:MiniGrid-Empty-5x5-v0"
    words = ["backend=gymnasium", f"env.id={id_}", "ppo.num_steps=16", "total_timesteps=64", "framework=torch_eager"]
    trained(tmp_path, *words)
    said = capfd.readouterr().err.splitlines()
    assert f"ppo_bench: warning: the policy does not see the texts in the observations of {id_}: mission" in said


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
