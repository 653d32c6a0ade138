"""Synthetic run folders, which look like those of real runs, for tests of their readers."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.common.values import env_name_and_id

FRAMEWORKS = ("torch_eager", "torch_compile", "jax_xla")
SPEEDS = {"torch_eager": 10_000.0, "torch_compile": 15_000.0, "jax_xla": 30_000.0}
COMPILE_SECONDS = {"torch_eager": None, "torch_compile": 12.0, "jax_xla": 5.0}
IDS = {"cartpole": "CartPole-v1", "acrobot": "Acrobot-v1", "breakout": "Breakout-v5", "pong": "Pong-v5"}
RETURNS = {"cartpole": (20.0, 490.0), "acrobot": (-500.0, -86.0), "breakout": (1.7, 400.0), "pong": (-20.7, 20.0)}
"""At the beginning and at the end."""
BATCH = 512
NOT_HASHED = ("name", "seed", "num_seeds", "rerun", "outputs")
"""Root keys that are no part of an identity."""

ABOUT: dict[str, Any] = {
    "schema_version": 1,
    "started": "2026-01-01T00:00:00+00:00",
    "config": {
        "name": "default",
        "seed": 1,
        "num_seeds": 1,
        "total_timesteps": 0,
        "precision": "float32",
        "device": "auto",
        "rerun": False,
        "outputs": "outputs",
        "checkpoint": {"every_iterations": 200, "keep": 2, "load": None},
        "env": {"name": "", "ids": {}, "id": None, "atari": None, "kwargs": None, "wrappers": []},
        "ppo": {"num_envs": 4, "num_steps": 128, "learning_rate": 0.00025, "gamma": 0.99, "target_kl": None},
        "framework": {"_target_": "ppo_bench.runners.frameworks.Torch", "name": "", "num_threads": None},
        "backend": {"_target_": "ppo_bench.envs.gymnasium.GymnasiumBackend", "name": "gymnasium"},
        "network": {"_target_": "ppo_bench.networks.spec.Auto", "hidden_sizes": [64, 64], "activation": "tanh"},
    },
    "versions": {"python": "3.11.7", "torch": "2.13.0", "jax": "0.10.2", "numpy": "2.4.6"},
    "git_commit": "0" * 40,
    "hardware": {"cpu": "AMD EPYC", "cores": 2, "memory_gib": 24, "gpu": None, "platform": "Linux"},
    "execution": {"device": "cpu", "precision": {"parameters": "float32", "tf32": False}},
}


def merged(tree: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`tree` with `changes`, whose keys are dotted."""
    tree = copy.deepcopy(tree)
    for key, value in changes.items():
        *path, last = key.split(".")
        branch = tree
        for name in path:
            branch = branch[name]
        branch[last] = value
    return tree


def write_run(
    outputs: Path,
    env: str = "cartpole",
    framework: str = "torch_eager",
    seed: int = 1,
    iterations: int = 200,
    *,
    final: float | None = None,
    spread: float = 0.02,
    sps: float | None = None,
    finished: bool = True,
    folder: str | None = None,
    changes: dict[str, Any] | None = None,
) -> Path:
    """A run that learns along a sigmoid to about `final` and keeps a speed of about `sps`; its folder.

    `changes` go into run.json. What is random follows from env, framework and seed.
    """
    rng = np.random.default_rng([seed, *map(ord, env + framework)])
    low, high = RETURNS.get(env, (0.0, 1.0))
    end = final if final is not None else high + spread * (high - low) * rng.normal()
    speed = sps if sps is not None else SPEEDS.get(framework, 10_000.0) * (1 + 0.03 * rng.normal())
    compiling = COMPILE_SECONDS.get(framework)
    atari = {"noop_max": 30} if env in ("breakout", "pong") else None
    about = merged(
        ABOUT,
        {
            "started": str(datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=int(rng.integers(10**6)))),
            "config.seed": seed, "config.total_timesteps": iterations * BATCH if finished else 2 * iterations * BATCH,
            "config.env.name": env, "config.env.ids": {"gymnasium": IDS.get(env, f"{env}-v0")},
            "config.env.atari": atari, "config.framework.name": framework, **(changes or {}),
        },
    )  # fmt: skip
    config = about["config"]
    trained = {key: value for key, value in config.items() if key not in NOT_HASHED}
    task = {key: value for key, value in config["env"].items() if key not in ("name", "ids", "id")}
    trained["env"] = {"id": env_name_and_id(config)[1], **task}
    trained["checkpoint"] = {"every_iterations": config["checkpoint"]["every_iterations"]}
    about["identity"] = trained | {"revision": 2}
    path = outputs / (folder or f"default/{env}-gymnasium-{framework}-0a1b2c3d/seed{seed}")
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(about))
    k = np.arange(1, iterations + 1)
    seconds = BATCH / speed * k + (compiling or 0.0)
    progress = 1 / (1 + np.exp(-(k / iterations - 0.4) * 14))
    returns = low + (end - low) * progress + 0.05 * abs(high - low) * rng.normal(size=iterations) * (progress < 0.98)
    returns[-max(1, iterations // 20) :] = end
    speeds = speed * (1 + 0.02 * rng.normal(size=iterations))
    losses = rng.random((iterations, 9))
    names = [
        *("policy_loss", "value_loss", "entropy", "old_approx_kl", "approx_kl", "clip_fraction"),
        *("explained_variance", "gradient_norm", "masked_fraction"),
    ]
    form = (
        '{"iteration": %d, "global_step": %d, "wall_seconds": %r, "sps": %r, "learning_rate": 0.00025, '
        + ", ".join(f'"{name}": %r' for name in names)
        + ', "episodes": 8, "episodic_return": %r, "episodic_length": 64.0}\n'
    )
    columns = zip(k, k * BATCH, seconds.tolist(), speeds.tolist(), *losses.T.tolist(), returns.tolist(), strict=True)
    (path / "metrics.jsonl").write_text("".join(form % row for row in columns))
    with open(path / "episodes.jsonl", "w") as file:
        for index, value in zip(k.tolist(), returns.tolist(), strict=True):
            file.write(f'{{"global_step": {index * BATCH}, "env": 0, "return": {value!r}, "length": 64}}\n')
    if finished:
        result = {
            "schema_version": 1, "status": "complete", "env": env, "framework": framework, "seed": seed,
            "num_seeds": about["config"]["num_seeds"],
            "global_step": iterations * BATCH, "iterations": iterations, "episodes": 8 * iterations,
            "final_return_mean": end, "final_return_std": 0.0, "masked_fraction": 0.0,
            "wall_seconds": float(seconds[-1]), "setup_seconds": 1.0, "compile_seconds": compiling,
            "steady_sps": float(np.median(speeds)), "mean_sps": speed, "peak_memory_bytes": 300_000_000,
        }  # fmt: skip
        (path / "result.json").write_text(json.dumps(result))
    return path


def write_sweep(
    outputs: Path,
    envs: tuple[str, ...] = ("cartpole", "acrobot"),
    frameworks: tuple[str, ...] = FRAMEWORKS,
    seeds: int = 5,
    iterations: int = 200,
) -> int:
    """A sweep as one command would leave it; how many runs."""
    for env in envs:
        for framework in frameworks:
            for seed in range(1, seeds + 1):
                write_run(outputs, env, framework, seed, iterations)
    return len(envs) * len(frameworks) * seeds
