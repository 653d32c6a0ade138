"""Types of the keys of conf/config.yaml; that file explains the keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ppo_bench.common.values import younger
from ppo_bench.envs.base import Atari


@dataclass
class EnvSchema:
    """`env`; see conf/env/cartpole.yaml."""

    name: str
    ids: dict[str, str]
    id: str | None
    atari: Atari | None
    game: str | None = None
    mode: str | None = None
    kwargs: dict[str, Any] | None = None
    wrappers: list[Any] = field(default_factory=list)
    rescale_actions: bool = younger(False)
    observe: list[int] = younger([])  # noqa: RUF009 (a field of its own)
    players: int = younger(1)
    info: list[str] = field(default_factory=list)


@dataclass
class CheckpointSchema:
    """`checkpoint`; see conf/config.yaml."""

    every_iterations: int
    keep: int
    load: str | None
    fine_tune: bool = younger(False)


@dataclass
class VideoSchema:
    """`video`; see conf/config.yaml."""

    every_episodes: int


@dataclass
class EvaluationSchema:
    """`evaluation`; see conf/config.yaml."""

    every_iterations: int
    episodes: int


@dataclass
class RootSchema:
    """The keys of conf/config.yaml; nodes of type `Any` have classes of their own."""

    name: str
    seed: int
    num_seeds: int
    total_timesteps: int
    precision: str
    device: str
    devices: int
    rerun: bool
    outputs: str
    checkpoint: CheckpointSchema
    video: VideoSchema
    evaluation: EvaluationSchema
    env: EnvSchema
    ppo: Any
    framework: Any
    backend: Any
    network: Any
    algorithm: Any
    tuning: Any
    tracker: dict[str, dict[str, Any]] = field(default_factory=dict, kw_only=True)
    grid: dict[str, Any] | None = field(default=None, kw_only=True)
