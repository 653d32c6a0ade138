"""What `make setup` installs: locked versions, from wherever pip's settings say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.training import ROOT

UV = """#!/bin/sh
echo "$*"
env | grep ^UV_ | sort
"""
"""A program in place of uv that says what it was given."""
PIP = """[global]
find-links =
    /first/wheels
    /second/wheels
index-url = https://mirror.invalid/simple
extra-index-url = https://more.invalid/simple https://most.invalid/simple
"""


def locked() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    assert len({requirement.name for requirement in requirements}) == len(requirements)
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def test_every_version_is_locked_and_no_place_is_named() -> None:
    for requirement in locked().values():
        assert re.fullmatch(r"==[\w.]+", str(requirement.specifier)), requirement  # no local version, such as +cpu
        assert requirement.url is None
    text = (ROOT / "constraints.txt").read_text()
    assert not re.search(r"://|/|--", text)


def test_what_is_asked_for_is_locked_within_its_bounds() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    versions = locked()
    for line in asked:
        requirement = Requirement(line)
        if requirement.name != "ppo-bench":
            (version,) = versions[canonicalize_name(requirement.name)].specifier
            assert requirement.specifier.contains(version.version, prereleases=True), line


def test_what_is_installed_here_is_what_is_locked() -> None:
    """All that the tests run on, down to what is asked for by what is asked for."""
    versions, todo, seen = locked(), ["ppo-bench"], set()
    while todo:
        package = todo.pop()
        for line in metadata.requires(package) or []:
            requirement = Requirement(line)
            name = canonicalize_name(requirement.name)
            extras = ("all", "dev") if package == "ppo-bench" else ("",)
            wanted = requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in extras)
            if wanted and name not in seen:
                seen.add(name)
                todo.append(name)
                assert versions[name].specifier.contains(metadata.version(name), prereleases=True), name
    assert {"torch", "jaxlib", "envpool-assets", "markupsafe"} <= seen


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({"PIP_FIND_LINKS": "/my/wheels"}, ["UV_FIND_LINKS=/my/wheels"]),
        ({"UV_FIND_LINKS": "/own", "PIP_FIND_LINKS": "/my/wheels"}, ["UV_FIND_LINKS=/own"]),
        (
            {"PIP_CONFIG_FILE": "pip.conf"},
            [
                "UV_DEFAULT_INDEX=https://mirror.invalid/simple",
                "UV_FIND_LINKS=/first/wheels,/second/wheels",
                "UV_INDEX=https://more.invalid/simple https://most.invalid/simple",
                "UV_INDEX_STRATEGY=unsafe-best-match",
            ],
        ),
        (
            {"PIP_CONFIG_FILE": "pip.conf", "PIP_FIND_LINKS": "/my/wheels", "UV_INDEX": "", "UV_DEFAULT_INDEX": ""},
            ["UV_DEFAULT_INDEX=", "UV_FIND_LINKS=/my/wheels", "UV_INDEX="],
        ),
    ],
)
def test_uv_looks_where_pip_does(changes: dict[str, str], expected: list[str], tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "uv").write_text(UV)
    (tmp_path / "uv").chmod(0o755)
    (tmp_path / "pip.conf").write_text(PIP)
    (tmp_path / "etc").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "UV_"))}
    path = f"{tmp_path}:{os.environ['PATH']}"
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "XDG_CONFIG_DIRS": str(tmp_path / "etc"), "HOME": str(tmp_path)}
    command = [str(ROOT / "launch" / "uv.sh"), "pip", "list"]
    ended = subprocess.run(
        command, cwd=tmp_path, env=kept | nowhere | changes | {"PATH": path}, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == ["pip list", *expected]
