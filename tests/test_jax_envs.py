"""Common properties of environments written in JAX; tests/test_jax_dynamics.py compares each with gymnasium's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ppo_bench.commands.interface import load, train
from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import Atari, Task
from ppo_bench.envs.device import DeviceBackend
from ppo_bench.envs.dynamics.cartpole import CartPole, CartPoleState
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.dynamics.pendulum import Pendulum
from ppo_bench.envs.host import JaxVectorEnv


def test_a_fall_in_the_last_step_is_both_as_in_gymnasium() -> None:
    env = DynamicsEnv(CartPole(), 1)
    state, _ = env.reset(jnp, [0])
    with jax.enable_x64(True):
        fallen = CartPoleState(*(jnp.full(1, x, jnp.float64) for x in (2.39, 9.0, 0.0, 0.0)))
        state = state._replace(dynamics=fallen, steps=jnp.full(1, 499, jnp.int32))
    _, step = env.step(state, np.zeros(1, np.int32))
    assert (bool(step.terminated[0]), bool(step.truncated[0])) == (True, True)


class Counter:
    """Dynamics of a user's own: a number that the action 1 raises; at 5 the episode ends."""

    time_limit = 20
    num_words = 1
    observation_space = spaces.Box(0.0, 5.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, end: int = 5) -> None:
        self._end = end

    def reset(self, words: jax.Array) -> jax.Array:
        return words[:, 0] % 2

    def step(self, state: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        state = state + actions.astype(state.dtype)
        return state, actions.astype(jnp.float32), state == self._end

    def observe(self, state: jax.Array) -> jax.Array:
        return state[:, None].astype(jnp.float32)


class FromOne(Counter):
    action_space = spaces.Discrete(2, start=1)


class Empty(Counter):
    observation_space = spaces.Box(0.0, 5.0, (0,), np.float32)


class Wordless(Counter):
    num_words = 0


class OfAnotherShape(Counter):
    def observe(self, state: jax.Array) -> jax.Array:
        return super().observe(state).reshape(-1)


FAULTS: dict[str, tuple[Callable[[Any, Any, Any], Any], str]] = {
    "columns": (lambda s, r, t: (s, r[:, None], t), "step returns rewards of shape (2, 1) for 2 environments, not"),
    "numbers": (lambda s, r, t: (s, r, t.astype(jnp.float32)), "step returns terminated as float32, not bool"),
    "growing": (lambda s, r, t: (jnp.stack([s, s]), r, t), "step changes the state from int32[2] to int32[2, 2]"),
    "halves": (lambda s, r, t: (s + 0.5, r, t), "step changes the state from int32[2] to float64[2]"),
    "two": (lambda s, r, t: (s, r), "step must return (state, reward, terminated)"),
}


class Faulty(Counter):
    """Returns something else from a step."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self._change = FAULTS[fault][0]

    def step(self, state: jax.Array, actions: jax.Array) -> Any:
        return self._change(*super().step(state, actions))


@pytest.mark.parametrize("fault", FAULTS)
def test_steps_that_return_something_else_are_refused(fault: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(FAULTS[fault][1])):
        DeviceBackend("device").make(Task("own", "tests.test_jax_envs:Faulty", 2, kwargs={"fault": fault}))


class ShortPendulum(Pendulum):
    """Computes with NumPy, PyTorch or JAX."""

    def observe(self, state: Any) -> Any:
        return super().observe(state)[:, :2]


def test_dynamics_of_ones_own_are_trained_by_their_id(tmp_path: Path) -> None:
    words = ["env.id=tests.test_jax_envs:Counter", "framework=jax_xla", "backend=device", "total_timesteps=4096"]
    (folder,) = train([*words, "device=cpu", f"outputs={tmp_path}"])
    result = json.loads((folder / "result.json").read_text())
    assert result["env_id"] == "tests.test_jax_envs:Counter"
    assert 4 <= result["final_return_mean"] <= 5
    assert load(folder, framework="torch_eager").act(np.zeros((2, 1), np.float32)).tolist() == [1, 1]


class CostlyCounter(Counter):
    """The same, whose resets have another type than its steps; a program computes only those that are due."""

    costly_resets = True

    def reset(self, words: jax.Array) -> jax.Array:
        return super().reset(words).astype(jnp.float32)

    def step(self, state: jax.Array, actions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        return super().step(state.astype(jnp.int32), actions)


@pytest.mark.parametrize("num_envs", [1, 40])
def test_resets_that_are_costly_are_those_of_all_environments_at_once(num_envs: int) -> None:
    """Up to 40 environments end in a step, in chunks of three. Two seeds are mapped in one program."""
    actions = np.random.default_rng(1).integers(0, 2, (50, num_envs)).astype(np.int32)
    actions[:5] = 1  # all end together first

    def played(dynamics: Counter) -> Any:
        env = DynamicsEnv(dynamics, num_envs)
        states = [env.reset(jnp, [seed + k for k in range(num_envs)])[0] for seed in (1, 100)]
        stacked = jax.tree.map(lambda *arrays: jnp.stack(arrays), *states)
        play = jax.vmap(lambda state: jax.lax.scan(env.step, state, actions))
        with jax.enable_x64(True):
            return jax.device_get(jax.jit(play)(stacked))

    expected, found = played(Counter()), played(CostlyCounter())
    assert expected[0].episodes.min() > 3
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert found[0].dynamics.dtype == np.float32


@pytest.mark.parametrize(
    ("env_id", "atari", "fragment"),
    [
        ("nowhere:Counter", None, "No module named 'nowhere'"),
        ("tests.test_jax_envs:Task", None, "tests.test_jax_envs:Task on backend=device raises TypeError"),
        ("tests.broken:Sound", None, "a Dynamics (docs/environments.md) has observe, time_limit, num_words too"),
        ("tests.test_jax_envs:FromOne", None, "discrete actions must start at 0, not at 1"),
        ("tests.test_jax_envs:Empty", None, "observations of shape (0,) hold no number"),
        ("tests.test_jax_envs:Wordless", None, "num_words=0 must be an integer, at least 1"),
        ("tests.test_jax_envs:OfAnotherShape", None, "observe returns observations of shape (2,) for 2 environments"),
        ("tests.test_jax_envs:ShortPendulum", None, "observations of shape (2, 2) for 2 environments, not (2, 3)"),
        ("Hopper-v4", None, "backend=device has CartPole-v1, Acrobot-v1"),
        ("CartPole-v1", Atari(True, True), "CartPole-v1 is not an Atari game: add env.atari=null"),
    ],
)
def test_what_is_no_dynamics_is_refused(env_id: str, atari: Atari | None, fragment: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(fragment)):
        DeviceBackend("device").make(Task("own", env_id, 2, atari))


@pytest.mark.parametrize("of_process", [False, True])
def test_actions_of_float64_keep_their_digits_whatever_the_process_computes_in(of_process: bool) -> None:
    torque = 1 + 2.0**-30  # 1 in float32
    with jax.enable_x64(of_process):
        view = JaxVectorEnv(DeviceBackend("device").make(Task("pendulum", "Pendulum-v1", 1)))
        view.reset([1])
        (theta,), (speed,) = (np.array(of) for of in view._state.dynamics)
        view.step(np.array([[torque]]))
    moved = float(view._state.dynamics.theta_dot[0])
    assert moved == pytest.approx(speed + (15 * np.sin(theta) + 3 * torque) * 0.05, abs=1e-14)
