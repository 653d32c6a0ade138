"""The contract of environments: vectorised, with next-step autoreset.

After a done step (terminated or truncated) the returned observation is the **final** one of its episode. The **next**
step is a reset step: it ignores its action and returns the first observation of the new episode with reward 0.
Learning masks it. The truncation bootstrap is therefore the next value, shapes are fixed, and the same function
computes episode returns for every backend. `python -m ppo_bench.check` tests whether a backend keeps the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import AT_LEAST_1, added_field, within
from ppo_bench.mathematics.arrays import Array
from ppo_bench.tuning.switches import ON, Tuning

if TYPE_CHECKING:
    import gymnasium


DEFAULT_INFO_KEYS = {"is_success"}
"""The `Task.info` of conf/config.yaml."""
NO_LIMIT = 2**31 - 1
"""The `time_limit` of dynamics that never end an episode so, and EnvPool's `max_episode_steps` of such environments."""
MAX_STEPS_PER_GAME = 27_000
"""The time limit of an Atari game, in steps of four frames (108,000 frames)."""


class PolicyInput(NamedTuple):
    """The inputs of a policy before it acts."""

    obs: Any
    """Observations `[N, ...]`; valid until the next step."""
    policy_mask: Any = None
    """Flags `[N]` bool: whether the environment will use the row's action. None if it uses all but those of reset
    steps. In a turn-based game a player who is not to move passes: the policy's loss leaves that step out, the critic's
    does not."""
    action_mask: Any = None
    """Flags `[N, A]` bool of the legal choices, at least one of each component; None if all are legal. Only
    environments with `masks_actions` have it; in a row that passes all are true."""
    episode_start: Any = None
    """Flags `[N]` bool: whether the network's carry is reset, because the observation is the first of its episode. The
    runner sets it; environments leave it None."""

    def map(self, function: Callable[[Any], Any]) -> PolicyInput:
        """A copy with `function` applied to every array that is not None."""
        return PolicyInput(*(None if array is None else function(array) for array in self))


class EnvStep(NamedTuple):
    """The result of one step of N environments. Arrays stay valid at least until the next step.

    `obs [N, ...]`; `reward [N]` float32, from which the agent learns; `terminated`, `truncated`, `episode_over [N]`
    bool; `raw_reward [N]` float32, the game's own reward before clipping. `episode_over` marks the end of a whole
    episode: it is false where only a life was lost. `policy_mask` and `action_mask` belong to `obs`; see `PolicyInput`.
    """

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode_over: np.ndarray
    raw_reward: np.ndarray
    policy_mask: np.ndarray | None = None
    action_mask: np.ndarray | None = None
    final_obs: Any = None
    """Final observations `[N, ...]` of environments that are `GraphEnv.same_step`, in the rows where an episode ends;
    None if the step returns none. All others return them as `obs`."""

    @property
    def policy_input(self) -> PolicyInput:
        """The inputs of the policy after this step."""
        return PolicyInput(self.obs, self.policy_mask, self.action_mask)

    def map(self, function: Callable[[Any], Any]) -> EnvStep:
        """A copy with `function` applied to every array that is not None."""
        fields: Any = (None if array is None else function(array) for array in self)
        return EnvStep(*fields)

    @staticmethod
    def stack(steps: Sequence[EnvStep]) -> EnvStep:
        """T steps of the same environments, stacked to arrays `[T, N, ...]`."""
        columns: Any = zip(*steps, strict=True)
        fields: Any = (None if column[0] is None else np.stack(column) for column in columns)
        return EnvStep(*fields)


class VectorEnv(Protocol):
    """N environments that step together.

    Optional attributes are:

    - `players`: number of consecutive rows that form one game,
    - `episode_info`: the entries of the latest step's `info` that `Task.info` names, `[N]` each by name; NaN where an
      environment has no such entry,
    - `same_step`: true for a view of environments with `GraphEnv.same_step`, which only `play`
      (ppo_bench/runs/play.py) takes,
    - `step_async(actions)` and `step_wait()`: the two halves of `step`, between which the environments run while this
      process does something else; a backend with `num_groups` needs them,
    - `time_limit`: steps after which an episode is truncated; None if it never is, for a warning
      (ppo_bench/runs/advice.py).
    """

    num_envs: int

    @property
    def masks_actions(self) -> bool:
        """Whether the environments say which choices are legal; see `PolicyInput.action_mask`."""

    @property
    def observation_space(self) -> gymnasium.spaces.Box[Any]:
        """Observation space of one environment."""

    @property
    def action_space(self) -> Any:
        """Action space of one environment: `Discrete`, or one-dimensional `MultiDiscrete`, `MultiBinary` or `Box` of
        floats."""

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """Restart all environments, with one seed each, and return the policy's first inputs."""

    def step(self, actions: np.ndarray) -> EnvStep:
        """Step all environments with integer actions `[N]` or `[N, K]`, or float actions `[N, A]`.

        Actions of environments whose last step was done are ignored.
        """

    def close(self) -> None:
        """Release all resources."""


class GraphEnv(ABC):
    """N environments that step together inside a JAX program or as PyTorch's tensors, under the contract of a
    `VectorEnv`."""

    masks_actions: bool = False
    """Whether the environments say which choices are legal; see `PolicyInput.action_mask`."""
    short_steps: bool = False
    """Whether a step is so few operations that a GPU takes several in one pass of a program's loop."""
    same_step: bool = False
    """Whether a step that ends an episode returns the first observation of the next one (gymnasium's `SAME_STEP`).
    There are no reset steps then."""
    components: tuple[int, ...] | None = None
    """Indices of the components to which `reset` and steps reduce observations, empty for all; None if they cannot."""
    portable: bool = False
    """Whether `reset` takes each of `jax.numpy`, `torch` and `numpy`."""
    num_envs: int
    observation_space: gymnasium.spaces.Box[Any]
    action_space: Any

    @abstractmethod
    def reset(self, xp: Any, seeds: Sequence[int], device: Any = None) -> tuple[Any, PolicyInput]:
        """Restart all environments, with one seed each, as arrays of `xp`; those of `torch` are on `device`.

        Returns their state, a pytree of arrays, and the policy's first inputs. Raises `ConfigError` if `xp` does not
        step them.
        """

    @abstractmethod
    def step(self, state: Any, actions: Any) -> tuple[Any, EnvStep]:
        """The state and result after `actions`, `[N]` or `[N, A]`, as arrays of the `xp` of the last `reset`. It can be
        traced into a program."""

    def draw_reset_words(self, state: Any, num_steps: int) -> Any:
        """`state` with the random words of all resets in the next steps, where they are drawn ahead. After it, a step
        of PyTorch does not branch on values, so that it can be compiled or recorded."""
        return state

    @abstractmethod
    def close(self) -> None:
        """Release all resources."""


def columns(xp: Any, obs: Array, components: tuple[int, ...]) -> Array:
    """The `components` of `obs [N, D]`; `obs` itself if there are none."""
    return xp.stack([obs[:, component] for component in components], -1) if components else obs


@dataclass
class Atari:
    """Preprocessing of Atari games: the same task on every backend (Machado et al. 2018, by default without sticky
    actions).

    An observation consists of `frames` stacked grey images of 84 x 84 pixels, scaled by area interpolation. Each is the
    maximum of the last two of four skipped frames. A game starts with up to 30 no-ops and FIRE, and is truncated after
    27,000 steps.
    """

    episodic_life: bool
    """Whether a lost life ends the episode for learning; it never does for statistics."""
    reward_clip: bool
    """Whether the agent learns from the sign of the reward."""
    baselines: bool = added_field(False)
    """Whether frames and resets are those of OpenAI Baselines' wrappers (ppo_bench/envs/atari_baselines.py)."""
    frames: int = added_field(4, AT_LEAST_1)
    """Number of stacked frames in an observation."""
    repeat_action_probability: float = added_field(
        0.0, within(lambda value: 0 <= value < 1, "must be at least 0 and below 1")
    )
    """Sticky actions: probability that the emulator repeats the previous action in a frame (Machado et al. 2018)."""


@dataclass(frozen=True)
class Task:
    """The description of the environments that a backend builds."""

    name: str
    """Name of the environment in file names and reports."""
    id: str
    """The backend's id of the environment."""
    num_envs: int
    atari: Atari | None = None
    """Preprocessing of Atari games; None for all other environments."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor."""
    wrappers: tuple[Mapping[str, Any], ...] = ()
    """Gymnasium wrappers around each environment, innermost first: the class as `_target_`, and its arguments."""
    tuning: Tuning = ON
    observe: tuple[int, ...] = ()
    """Indices of the components of vector observations that the agent sees; empty for all."""
    players: int = 1
    """Number of players of a game, each in a row of its own (ppo_bench/envs/turns.py)."""
    info: tuple[str, ...] = ()
    """Names of numeric `info` entries that are recorded with episodes; see `episode_info` of `VectorEnv`."""

    def with_num_envs(self, num_envs: int) -> Task:
        """A copy with `num_envs` environments, rounded up to whole games."""
        return replace(self, num_envs=-(-num_envs // self.players) * self.players)

    def require_no_wrappers(self, backend: str, kwargs_too: bool = False, info_too: bool = True) -> None:
        """Raise `ConfigError` if the task has wrappers or Baselines' resets, which `backend` does not support.

        With `kwargs_too`, also if it has constructor arguments; with `info_too`, if it records `info` entries other
        than the default one.
        """
        if self.wrappers:
            raise ConfigError(f"env.wrappers: backend={backend} has none; use backend=gymnasium")
        if kwargs_too and self.kwargs:
            raise ConfigError(f"env.kwargs: the environments of backend={backend} take none; use backend=gymnasium")
        if info_too and set(self.info) - DEFAULT_INFO_KEYS:
            raise ConfigError(f"env.info: backend={backend} tells none; use backend=gymnasium or backend=envpool")
        if self.atari and self.atari.baselines:
            raise ConfigError(
                f"env.atari.baselines: backend={backend} has resets of its own; "
                "use backend=gymnasium or env.atari.baselines=false"
            )


class Backend(Protocol):
    """A choice of the group `backend`, made from its YAML file: where environments come from.

    A backend with `in_graph` also has `libraries(env_id)`: array libraries that step the environments with this id, a
    tuple of `jax` and `torch`; see `Torch.library`. One that needs a package has `package`, its name, which is that of
    the extra that installs it.
    """

    in_graph: ClassVar[bool]
    """Whether its environments are `GraphEnv`s; false if they run on the host."""
    vmappable: ClassVar[bool]
    """Whether `jax.vmap` can step several sets of its environments, as a training of several runs needs."""
    name: str

    def make(self, task: Task) -> VectorEnv | GraphEnv:
        """The environments of `task`."""
