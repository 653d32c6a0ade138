"""Environments of one `Dynamics`: part of a JAX program, or stepped by PyTorch or NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import NO_LIMIT, EnvStep, GraphEnv, PolicyInput
from ppo_bench.envs.dynamics.base import Autoreset, Dynamics, EnvState, PortableDynamics, State
from ppo_bench.mathematics.arrays import Array


class DynamicsEnv(GraphEnv):
    """N environments of one `Dynamics`. JAX is imported only where they become part of a JAX program."""

    components: tuple[int, ...] = ()

    def __init__(self, dynamics: Dynamics, num_envs: int) -> None:
        self.num_envs = num_envs
        self.observation_space = dynamics.observation_space
        self.action_space = dynamics.action_space
        self.time_limit = dynamics.time_limit if dynamics.time_limit < NO_LIMIT else None
        self.short_steps = getattr(dynamics, "short_steps", False)
        self.portable = isinstance(dynamics, PortableDynamics)
        self._dynamics = dynamics
        self._over: dict[Any, Autoreset] = {}
        self._outside: Autoreset | None = None
        """Steps of PyTorch or NumPy, if the last reset was theirs."""

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> tuple[EnvState, PolicyInput]:
        """See `GraphEnv.reset`."""
        self._outside = None
        if xp.__name__ == "jax.numpy":
            with _in_full():
                state, obs = self._start(xp.asarray(seeds, xp.int32))
                return state, PolicyInput(obs)
        if not isinstance(self._dynamics, PortableDynamics):
            raise ConfigError("these environments are part of a JAX program: use framework=jax_xla")
        place = functools.partial(xp.asarray, device=device)
        if xp not in self._over:
            self._over[xp] = Autoreset(xp, self._dynamics.with_xp(xp, place), self.components)
        self._outside = self._over[xp]
        state, obs = self._outside.init(place(np.asarray(seeds, np.int32)))
        fields = state.dynamics if hasattr(state.dynamics, "_fields") else [None]
        if not all(hasattr(field, "shape") for field in fields):
            name = type(self._dynamics).__name__
            raise ConfigError(
                f"{name}: the state of a PortableDynamics is a NamedTuple of arrays; others are for framework=jax_xla"
            )
        return state, PolicyInput(obs)

    def step(self, state: EnvState, actions: Array) -> tuple[EnvState, EnvStep]:
        """See `GraphEnv.step`."""
        if self._outside:
            return self._outside.step(state, actions)
        with _in_full():
            return self._in_jax.step(state, actions)

    def draw_reset_words(self, state: EnvState, num_steps: int) -> EnvState:
        """See `GraphEnv.draw_reset_words`."""
        return self._outside.draw_reset_words(state, num_steps) if self._outside else state

    # --- In JAX -------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _in_jax(self) -> Autoreset:
        import jax.numpy as jnp

        own = self._dynamics
        return Autoreset(jnp, own.with_xp(jnp) if isinstance(own, PortableDynamics) else own, self.components)

    @functools.cached_property
    def _start(self) -> Callable[[Array], tuple[EnvState, Array]]:
        """`Autoreset.init`, compiled: its results have memory of their own, which a program can be donated."""
        import jax

        return jax.jit(self._in_jax.init)

    def close(self) -> None:
        """Do nothing: there are no resources to release."""


def require_shapes(name: str, dynamics: Dynamics) -> None:
    """Raise `ConfigError` if what `dynamics` computes for two environments has other shapes than `Dynamics` says."""
    portable = isinstance(dynamics, PortableDynamics)
    with_types = not getattr(dynamics, "costly_resets", False)  # these have resets of another type

    def results(xp: Any) -> tuple[Any, Any, Any]:
        state = dynamics.reset(xp.zeros((2, dynamics.num_words), xp.int32))
        space: Any = dynamics.action_space
        actions = xp.zeros((2, *space.shape), xp.float32 if space.dtype.kind == "f" else xp.int32)
        return state, dynamics.observe(state), dynamics.step(state, actions)

    if portable:
        state, obs, stepped = results(np)
    else:
        import jax

        with _in_full():
            state, obs, stepped = jax.eval_shape(lambda: results(jax.numpy))
    if not (isinstance(stepped, tuple) and len(stepped) == 3):
        raise ConfigError(f"{name}: step must return (state, reward, terminated) (docs/environments.md)")
    for what, array, shape in (
        ("observe returns observations", obs, (2, *dynamics.observation_space.shape)),
        ("step returns rewards", stepped[1], (2,)),
        ("step returns terminated", stepped[2], (2,)),
    ):
        if (found := getattr(array, "shape", ())) != shape:
            raise ConfigError(f"{name}: {what} of shape {found} for 2 environments, not {shape} (docs/environments.md)")
    if stepped[2].dtype != bool:
        raise ConfigError(f"{name}: step returns terminated as {stepped[2].dtype}, not bool (docs/environments.md)")
    before, after = (_arrays(each, portable, with_types) for each in (state, stepped[0]))
    if before != after:
        raise ConfigError(f"{name}: step changes the state from {before} to {after} (docs/environments.md)")


def _arrays(state: State, portable: bool, with_types: bool) -> Any:
    """The shape of each array in a state, after its type if `with_types`."""

    def words(array: Any) -> str:
        shape = list(getattr(array, "shape", ()))
        return f"{array.dtype}{shape}" if with_types and hasattr(array, "dtype") else f"{shape}"

    if portable:
        return list(map(words, state)) if isinstance(state, tuple) else []
    import jax

    return jax.tree.map(words, state)


@contextmanager
def _in_full() -> Iterator[None]:
    """A context with JAX's 64-bit types and, on a GPU, without TF32, whatever the precision of learning."""
    import jax

    with jax.enable_x64(True), jax.default_matmul_precision("highest"):
        yield
