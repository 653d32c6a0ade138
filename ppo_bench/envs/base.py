"""The contract of every environment: vectorised, next-step autoreset.

After a done step (terminated or truncated) the returned observation is the **final** one of its episode. The **next**
step ignores its action and returns the first observation of the new episode with reward 0; learning masks that step.
The value of the observation after a truncated step is then simply the next value, shapes are fixed, and one fold
computes episode returns for every backend. `python -m ppo_bench.check` proves that a backend keeps the contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.values import younger
from ppo_bench.tuning.switches import ON, Tuning

if TYPE_CHECKING:
    import gymnasium


DEVICES = "devices"
"""The mesh axis by which a JAX program knows the devices that share it."""
MAX_STEPS_PER_GAME = 27_000
"""The time limit of an Atari game: 108,000 frames."""


class Seen(NamedTuple):
    """Everything that a policy may see before it acts."""

    obs: Any
    """`[N, ...]`; valid until the next step."""
    acts: Any = None
    """`[N]` bool: whether the action will count; None where all do but those of resets. In a game of turns a row that
    is not to move passes: it is left out of the policy's loss, not of the critic's."""
    legal: Any = None
    """`[N, A]` bool: the choices of which one may be taken, at least one of each component; None where all may be. Only
    of environments whose `masks_actions` is true, and all true in a row that passes."""
    start: Any = None
    """`[N]` bool: a network's memory begins anew, since the step before only reset the environment. Known to the
    runner; None from environments."""

    def map(self, function: Callable[[Any], Any]) -> Seen:
        """`function` of every array that there is."""
        return Seen(*(None if array is None else function(array) for array in self))


class Step(NamedTuple):
    """What one step of N environments returns; every array is new or stays valid until the next step.

    `obs [N, ...]`; `reward [N]` float32, what is learnt from; `terminated`, `truncated`, `episode_over [N]` bool;
    `raw_reward [N]` float32, the reward of the game itself, before clipping. `episode_over` marks the end of what
    people call an episode: it is false where only a life was lost. `acts` and `legal` belong to `obs`; see `Seen`.
    """

    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode_over: np.ndarray
    raw_reward: np.ndarray
    acts: np.ndarray | None = None
    legal: np.ndarray | None = None

    @property
    def seen(self) -> Seen:
        """Everything that the policy may see now."""
        return Seen(self.obs, self.acts, self.legal)

    def map(self, function: Callable[[Any], Any]) -> Step:
        """`function` of every array that there is."""
        fields: Any = (None if array is None else function(array) for array in self)
        return Step(*fields)

    @staticmethod
    def stack(steps: Sequence[Step]) -> Step:
        """Steps of the same environments as one, `[T, N, ...]` each."""
        columns: Any = zip(*steps, strict=True)
        fields: Any = (None if column[0] is None else np.stack(column) for column in columns)
        return Step(*fields)


class VectorEnv(Protocol):
    """N environments that step together.

    They may say more of themselves: `players`, how many rows are one game; and, from which warnings are made
    (ppo_bench/runs/advice.py), `time_limit`, steps after which an episode is truncated; `flattens_images`, whether
    images are laid out as part of a vector. `told` is what the latest step had in its `info` of `Task.info`, by name:
    numbers `[N]`, NaN of environments that gave none.
    """

    num_envs: int

    @property
    def masks_actions(self) -> bool:
        """Whether they say which choices are legal; see `Seen.legal`."""

    @property
    def observation_space(self) -> gymnasium.spaces.Box[Any]:
        """Of one environment."""

    @property
    def action_space(self) -> Any:
        """Of one environment: `Discrete`; `MultiDiscrete`, `MultiBinary` or `Box` of floats of one dimension."""

    def reset(self, seeds: Sequence[int]) -> Seen:
        """Fresh environments, one seed each, and what a policy may see of them first."""

    def step(self, actions: np.ndarray) -> Step:
        """One step with choices `[N]` or `[N, K]` or floats `[N, A]`; those for done environments are ignored."""

    def close(self) -> None:
        """Release everything."""


EnvStep = Callable[[Any, Any], tuple[Any, Step]]
"""See `Start.step`."""


class Start(NamedTuple):
    """Environments of a JAX program that have just been reset."""

    step: EnvStep
    """`(state, actions [N] or [N, A]) -> (state, Step)` of JAX arrays, to be traced into a program. Equal to that of an
    earlier start where programs made from that one may go on to be used; otherwise they must not be."""
    state: Any
    """A pytree of JAX arrays."""
    seen: Seen
    """First observations, with all that a policy may see."""


class GraphEnv(ABC):
    """N environments that step together inside a JAX program, under the same contract as a `VectorEnv`."""

    programs_last: ClassVar[bool] = True
    """Whether a program that steps them is of use to another process."""
    masks_actions: bool = False
    """Whether they say which choices are legal; see `Seen.legal`."""
    num_envs: int
    observation_space: gymnasium.spaces.Box[Any]
    action_space: Any

    @abstractmethod
    def reset(self, seeds: Sequence[int]) -> Start:
        """Fresh environments, one seed each."""

    @abstractmethod
    def close(self) -> None:
        """Release everything."""


@dataclass
class Atari:
    """The preprocessing of Atari games, the same task on every backend (Machado et al. 2018, without sticky actions).

    84 x 84 grey frames by area interpolation, the maximum of the last two of four skipped frames, `frames` of them
    stacked, up to 30 no-ops and FIRE at the start, at most 27,000 steps a game.
    """

    episodic_life: bool
    """End an episode for learning, not for statistics, when a life is lost."""
    reward_clip: bool
    """Learn from the sign of the reward."""
    baselines: bool = younger(False)
    """The frames and resets of OpenAI Baselines' wrappers instead; see ppo_bench/envs/atari_baselines.py."""
    frames: int = younger(4)
    """How many of the last frames are observed, stacked."""
    repeat_action_probability: float = younger(0.0)
    """Sticky actions: how likely the emulator repeats the last one in a frame (Machado et al. 2018)."""


@dataclass(frozen=True)
class Task:
    """Which environments a backend is to build."""

    name: str
    """What the environment is called in file names and reports."""
    id: str
    """The id under which the backend knows it."""
    num_envs: int
    atari: Atari | None = None
    """Preprocessing of Atari games; None for everything else."""
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor."""
    wrappers: tuple[Mapping[str, Any], ...] = ()
    """Gymnasium wrappers around each environment, innermost first: the class as `_target_`, and its arguments."""
    tuning: Tuning = ON
    observe: tuple[int, ...] = ()
    """Components of vector observations that are seen; all if empty."""
    players: int = 1
    """How many play a game of turns, each in a row of its own; see ppo_bench/envs/turns.py."""
    info: tuple[str, ...] = ()
    """Numbers of `info` that are kept with episodes, where the environment gives them; see `VectorEnv`."""
    devices: int = 1
    """How many devices of one JAX program step the environments, each an equal part of them."""

    def alone(self) -> Task:
        """The same with a single environment, or the rows of a single game."""
        return self.at_least(1)

    def at_least(self, num_envs: int) -> Task:
        """The same with so many environments, or more where those would not be whole games."""
        return replace(self, num_envs=-(-num_envs // self.players) * self.players, devices=1)

    def plain(self, backend: str, kwargs_too: bool = False) -> None:
        """Raise `ConfigError` if something is asked for that `backend` does not take: wrappers, Baselines' resets.

        Arguments too, if `kwargs_too`.
        """
        if self.wrappers:
            raise ConfigError(f"env.wrappers: backend={backend} has none; use backend=gymnasium")
        if kwargs_too and self.kwargs:
            raise ConfigError(f"env.kwargs: the environments of backend={backend} take none; use backend=gymnasium")
        if self.atari and self.atari.baselines:
            raise ConfigError(
                f"env.atari.baselines: backend={backend} has resets of its own; "
                "use backend=gymnasium or env.atari.baselines=false"
            )


def require_no_info(task: Task, backend: str) -> None:
    """Raise `ConfigError` if numbers of `info` are asked for beside the default, of which `backend` tells none."""
    if set(task.info) - {"is_success"}:
        raise ConfigError(f"env.info: backend={backend} tells none; use backend=gymnasium or backend=envpool")


def supported_spaces(task: Task, observation_space: gymnasium.Space, action_space: gymnasium.Space) -> None:
    """Raise `ConfigError` unless observations are one array, and actions choices or one vector of floats."""
    from gymnasium import spaces

    if not isinstance(observation_space, spaces.Box):
        kind = type(observation_space).__name__
        raise ConfigError(f"{task.id}: observations of kind {kind} are not supported here, only Box (one array)")
    kinds = (spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary, spaces.Box)
    vector = isinstance(action_space, kinds) and len(action_space.shape or ()) == 1
    floats = isinstance(action_space, spaces.Box) and np.issubdtype(action_space.dtype, np.floating)
    starts = np.atleast_1d(getattr(action_space, "start", 0))
    if isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete) and starts.any():
        raise ConfigError(f"{task.id}: discrete actions must start at 0, not at {starts.max()}")
    if not isinstance(action_space, spaces.Discrete) and not (
        vector and (floats or not isinstance(action_space, spaces.Box))
    ):
        shown = " ".join(str(action_space).split())
        raise ConfigError(
            f"{task.id}: actions {shown} are not supported, only Discrete, MultiDiscrete and MultiBinary of one "
            "dimension, and vectors of floats"
        )
