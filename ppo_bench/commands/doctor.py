"""`python -m ppo_bench.doctor`: what this machine can run, and the command that fixes what it cannot.

Versions come from the packages' metadata. Each library is asked in a separate process, for example whether it sees the
GPU, so that a crash there becomes a line of the table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any, NamedTuple

from packaging.requirements import Requirement

from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import reason
from ppo_bench.runs.provenance import version_of
from ppo_bench.tuning.machine import cxx_compiler, has_nvidia_gpu

PACKAGE = "ppo-bench"
DEFAULT_RUN = ("torch",)
"""Extras that `python -m ppo_bench` needs."""
UNLISTED = ("all", "dev", "docs", "jax-cuda")
"""Extras without a row: sums of others, and what the row of CUDA in JAX is about."""
PROBES = {
    "torch": "import json, torch; n = torch.cuda.device_count(); "
    "print(json.dumps([torch.version.cuda, [torch.cuda.get_device_name(k) for k in range(n)]]))",
    "jax": "import json, jax; print(json.dumps([None, [d.device_kind for d in jax.devices() if d.platform == 'gpu']]))",
}
"""Programs by the package that they ask: each prints its answer as JSON in its last line."""
PROBE_SECONDS = 120.0


class Row(NamedTuple):
    """A line of the table."""

    name: str
    found: str
    fix: str = ""
    """The command that fixes it; empty where nothing is missing."""
    needed: bool = False
    """Whether the default run needs it."""


class Answer(NamedTuple):
    """What a probe printed, or why it failed."""

    value: Any
    error: str


def main(arguments: list[str]) -> int:
    """Print the table; 0 if the default run can run, else 1."""
    parser = Parser("python -m ppo_bench.doctor", description=__doc__)
    parser.parse_args(arguments)
    rows = list(examine())
    print("\n".join(line for row in rows for line in shown(row)))
    broken = [row.name for row in rows if row.needed and row.fix]
    print(f"\nThe default run will fail. Fix: {', '.join(broken)}" if broken else "\nThe default run can run: make run")
    return 1 if broken else 0


def examine() -> Iterator[Row]:
    """The rows of the table."""
    gpu = has_nvidia_gpu()
    yield from _packages()
    yield _cuda("CUDA in PyTorch", "torch", ask("torch"), gpu)
    yield _cuda("CUDA in JAX", "jax", ask("jax"), gpu)
    compiler = shutil.which(cxx_compiler())
    yield Row("C++ compiler", compiler or f"no {cxx_compiler()} on PATH", "" if compiler else "apt install g++")


def shown(row: Row) -> list[str]:
    """The lines of a row: whether it is ok, what was found, and below it the command that fixes it."""
    return [f"no  {row.name}: {row.found}", f"    fix: {row.fix}"] if row.fix else [f"ok  {row.name}: {row.found}"]


def ask(package: str) -> Answer:
    """The answer of a package's probe, which runs in a process of its own."""
    if not version_of(package):
        return Answer(None, "not installed")
    environment = os.environ | {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-c", PROBES[package]]
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Answer(None, f"no answer within {PROBE_SECONDS:.0f} seconds")
    if ended.returncode:
        return Answer(None, reason(ended.returncode, ended.stderr.splitlines()))
    return Answer(json.loads(ended.stdout.splitlines()[-1]), "")


def _packages() -> Iterator[Row]:
    """The package itself with what it always needs, and its extras, as its metadata list them."""
    try:
        requirements = [Requirement(line) for line in metadata.requires(PACKAGE) or []]
    except metadata.PackageNotFoundError as error:
        yield Row(PACKAGE, f"not installed: {error}", "make setup", needed=True)
        return
    yield _package_row(PACKAGE, "", requirements, f"pip install {PACKAGE}", needed=True)
    for extra in metadata.metadata(PACKAGE).get_all("Provides-Extra") or []:
        if extra not in UNLISTED:
            yield _package_row(
                extra, extra, requirements, f"pip install '{PACKAGE}[{extra}]'", needed=extra in DEFAULT_RUN
            )


def _package_row(name: str, extra: str, requirements: list[Requirement], fix: str, needed: bool) -> Row:
    """The row of an extra: what is missing of its packages, or else their versions."""
    versions, missing = {}, []
    for requirement in _of_extra(requirements, extra):
        version = version_of(requirement.name)
        if version is None:
            missing.append(f"no {requirement.name}")
        elif not requirement.specifier.contains(version, prereleases=True):
            missing.append(f"{requirement.name} {version} is not {requirement.specifier}")
        versions[requirement.name] = version
    found = ", ".join(missing or (f"{package} {version}" for package, version in versions.items()))
    return Row(name, found, fix if missing else "", needed)


def _of_extra(requirements: list[Requirement], extra: str) -> Iterator[Requirement]:
    """The requirements of an extra, or with `""` those of no extra, and what their own extras need."""
    for requirement in requirements:
        always, asked = (not requirement.marker or requirement.marker.evaluate({"extra": e}) for e in ("", extra))
        if not asked or (extra and always):
            continue
        yield requirement
        for inner in requirement.extras if version_of(requirement.name) else ():
            below = [Requirement(line) for line in metadata.requires(requirement.name) or []]
            yield from _of_extra(below, inner)


def _cuda(name: str, package: str, answer: Answer, gpu: bool) -> Row:
    """The row of CUDA in a package; `gpu` is whether this machine has an NVIDIA GPU."""
    needed = package in DEFAULT_RUN
    if answer.error:
        absent = answer.error == "not installed"
        fix = f"pip install '{PACKAGE}[{package}]'" if absent else f"pip install --force-reinstall {package}"
        return Row(name, f"{package}: {answer.error}", fix, needed)
    built_for, devices = answer.value
    if devices:
        return Row(name, ", ".join(devices), needed=needed)
    if not gpu:
        return Row(name, "no NVIDIA GPU on this machine: runs are on the CPU", needed=needed)
    if package == "jax":
        return Row(name, "JAX does not see the GPU of this machine", f"pip install '{PACKAGE}[jax-cuda]'")
    if built_for is None:
        return Row(
            name, "torch is a CPU build, for which there is no GPU", "pip install --force-reinstall torch", needed
        )
    return Row(name, f"torch, built for CUDA {built_for}, sees no GPU", "apt install nvidia-driver", needed)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
