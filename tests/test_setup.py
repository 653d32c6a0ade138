"""What `make setup` installs: locked versions, from wherever pip's settings say."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.training import ROOT


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
