"""The backend `tensors`: vector environments that return PyTorch tensors, as simulators on a GPU do."""

from __future__ import annotations

import pydoc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ppo_bench.common.errors import ConfigError, RunError, as_config_error, as_run_error
from ppo_bench.envs.base import EnvStep, GraphEnv, PolicyInput, Task, columns
from ppo_bench.envs.spaces import require_supported_spaces
from ppo_bench.envs.turns import require_players

FINAL_OBSERVATIONS = ("final_observation", "final_obs")
"""Names of final observations in `info`: ManiSkill's, and gymnasium's."""


@dataclass(frozen=True)
class TensorsBackend:
    """`backend=tensors`: vector environments of tensors with same-step autoreset, by `env.id=module:factory`."""

    in_graph: ClassVar[bool] = True
    vmappable: ClassVar[bool] = False
    package: ClassVar[str] = "torch"
    name: str

    def libraries(self, env_id: str) -> tuple[str, ...]:
        """See `Backend`."""
        return ("torch",)

    def make(self, task: Task) -> TensorEnv:
        """The environments of `task`. Raises `ConfigError` if its id does not name a factory of such environments."""
        task.require_no_wrappers("tensors")
        require_players(task, 1)
        if task.atari:
            raise ConfigError(f"env.atari: backend=tensors does not preprocess {task.id}: use env.atari=null")
        module, _, name = task.id.partition(":")
        with as_config_error(f"{task.id} on backend=tensors"):
            factory: Any = pydoc.locate(f"{module}.{name}") if name else None
            if not callable(factory):
                raise ConfigError(
                    f"env.id={task.id}: backend=tensors takes module:factory, a function of num_envs and env.kwargs "
                    "that Python can import"
                )
            env = TensorEnv(factory(num_envs=task.num_envs, **task.kwargs), task.id)
        try:
            if env.num_envs != task.num_envs:
                raise ConfigError(f"env.id={task.id} makes {env.num_envs} environments for num_envs={task.num_envs}")
            require_supported_spaces(task, env.observation_space, env.action_space)
        except ConfigError:
            env.close()
            raise
        return env


class TensorEnv(GraphEnv):
    """N environments of tensors with same-step autoreset, stepped by PyTorch outside of any program.

    Where a step ends an episode it returns the first observation of the next one, and `EnvStep.final_obs` has the final
    one.
    """

    components: tuple[int, ...] = ()
    same_step: bool = True

    def __init__(self, env: Any, env_id: str) -> None:
        self._env, self._id = env, env_id
        self.num_envs, self.action_space = env.num_envs, env.single_action_space
        self.observation_space = env.single_observation_space

    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> tuple[Any, PolicyInput]:
        """See `GraphEnv.reset`. The environments share one seed. `device` is checked; None allows any."""
        if xp.__name__ != "torch":
            raise ConfigError("backend=tensors is stepped by PyTorch: use framework=torch_eager or torch_compile")
        self._device = device
        obs, _ = self._call("reset", 2, seed=int(seeds[0]))
        return (), PolicyInput(self._selected("observations", obs))

    def _call(self, method: str, length: int, *args: Any, **kwargs: Any) -> Any:
        """The `length` results of a method, whose tensors can be modified in any mode of PyTorch."""
        import torch

        try:
            with torch.inference_mode(False), torch.no_grad():
                results = getattr(self._env, method)(*(x.clone() for x in args), **kwargs)
        except Exception as error:  # whatever the user's code raises
            raise as_run_error(f"env.id={self._id}: {method}", error) from error
        if not isinstance(results, tuple) or len(results) != length:
            names = "observations, reward, terminated, truncated, info" if method == "step" else "observations, info"
            raise RunError(f"env.id={self._id}: {method} returns something other than ({names})")
        return results

    def step(self, state: Any, actions: Any) -> tuple[Any, EnvStep]:
        """The result of a step, whose `obs` follow a reset where an episode has ended; see `GraphEnv.step`."""
        import torch

        obs, reward, terminated, truncated, info = self._call("step", 5, actions)
        obs = self._selected("observations", obs)
        for name, array in (("reward", reward), ("terminated", terminated), ("truncated", truncated)):
            self._require_shape(name, array, ())
        final = _final_observations(info or {})
        if final is not None:
            final = self._selected("final observations", final)
        reward, terminated, truncated = reward.to(torch.float32), terminated.bool(), truncated.bool()
        return state, EnvStep(obs, reward, terminated, truncated, terminated | truncated, reward, final_obs=final)

    def _selected(self, name: str, obs: Any) -> Any:
        """The components of `obs` that the agent sees. Raises `RunError` as `_require_shape`."""
        import torch

        self._require_shape(name, obs, self._env.single_observation_space.shape)
        return columns(torch, obs, self.components)

    def _require_shape(self, name: str, array: Any, shape: tuple[int, ...]) -> None:
        """Raise `RunError` unless `array` is a tensor `[N, *shape]` on the device of learning."""
        import torch

        expected = (self.num_envs, *shape)
        if not isinstance(array, torch.Tensor) or array.shape != expected:
            given = f"{type(array).__name__} {list(np.shape(array))}"
            raise RunError(f"env.id={self._id} returns {name} that are {given}, not a tensor {list(expected)}")
        device = self._device
        if device is not None and (array.device.type, array.device.index or 0) != (device.type, device.index or 0):
            raise RunError(
                f"env.id={self._id} returns {name} on {array.device}, and the policy is on {device}: use "
                f"device={array.device}, or make the environments on the other one (env.kwargs)"
            )

    def close(self) -> None:
        """Close the environments, if they can be closed."""
        if hasattr(self._env, "close"):
            self._env.close()


def _final_observations(info: Mapping[str, Any]) -> Any:
    return next((info[name] for name in FINAL_OBSERVATIONS if info.get(name) is not None), None)
