"""Provenance of a result: versions, source revision and hardware, as `run.json` records them."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ppo_bench.common.user_code import loaded_user_code
from ppo_bench.tuning.cores import num_available_cores
from ppo_bench.tuning.machine import cpu_model, gpu_model, memory_bytes

PACKAGES = (
    "ppo-bench",
    "torch",
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "numpy",
    "gymnasium",
    "envpool",
    "ale-py",
    "mujoco",
    "mujoco-mjx",
    "brax",
    "pgx",
    "shimmy",
    "dm-control",
    "hydra-core",
    "gymnax",
    "craftax",
    "minigrid",
    "memory-gym",
    "pettingzoo",
    "multi-agent-ale-py",
    "box2d",
)
VARIABLES = {
    name: os.environ.get(name)
    for name in (
        *("XLA_FLAGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION", "NVIDIA_TF32_OVERRIDE", "GLIBC_TUNABLES"),
        *("ATEN_CPU_CAPABILITY", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCHDYNAMO_DISABLE", "CUBLAS_WORKSPACE_CONFIG"),
        *("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE"),
        *("OPENBLAS_CORETYPE", "NCCL_ALGO", "NCCL_PROTO"),
    )
}
"""Environment variables that can change how a library computes, as they were when the process started."""


def provenance(objects: Iterable[str] = ()) -> dict[str, Any]:
    """Versions, code and hardware of this process; None for what is missing.

    The packages of `objects`, dotted names of classes, functions and modules, count in addition to `PACKAGES`.
    """
    packages = [*PACKAGES, *_packages_of(objects)]
    return {
        "versions": {"python": platform.python_version()} | {name: version_of(name) for name in packages},
        "git_commit": _git_commit(),
        "own_code": loaded_user_code(),
        "variables": VARIABLES,
        "hardware": {
            "cpu": cpu_model(),
            "cores": os.cpu_count(),
            # Lower for a job of a sweep whose jobs run side by side: its speeds are not those of a run alone.
            "cores_available": num_available_cores(),
            "memory_gib": round(memory_bytes() / 2**30),
            "gpu": gpu_model(),
            "platform": platform.platform(),
        },
    }


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Entries that differ between two provenances, each as `name: then -> now`, except those that `then` lacks."""
    code = then.get("own_code", {})
    changed = [f"the code of {name}" for name, digest in now["own_code"].items() if code.get(name, digest) != digest]
    for part in ("variables", "versions", "hardware", "execution"):
        before = then.get(part, {})
        changed += [
            f"{name}: {_none_if_unset(before[name])} -> {_none_if_unset(value)}"
            for name, value in now.get(part, {}).items()
            if before.get(name, value) != value
        ]
    if then.get("git_commit") != now["git_commit"]:
        changed.append(f"git_commit: {then.get('git_commit')} -> {now['git_commit']}")
    return changed


def _none_if_unset(value: object) -> object:
    return "none" if value is None else value


def _packages_of(objects: Iterable[str]) -> list[str]:
    """Names of the installed packages of dotted names, except this one and Hydra."""
    modules = {name.partition(".")[0] for name in objects} - {"ppo_bench", "hydra"}
    return sorted({package for module in modules for package in _packages_by_module().get(module, ())} - {*PACKAGES})


@functools.cache
def _packages_by_module() -> Mapping[str, Sequence[str]]:
    return metadata.packages_distributions()  # takes tenths of a second


def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is missing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of the source, with `+` if tracked files differ from it; None outside a clone."""
    source = Path(__file__).parent.parent
    if not (source.parent / ".git").exists():
        return None
    try:
        return _git(source, "rev-parse", "HEAD") + ("+" if _git(source, "status", "--porcelain", "-uno") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
