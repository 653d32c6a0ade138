"""What is installed: locked versions from wherever pip's settings say, and a wheel that behaves like the clone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
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
                for bounds in (versions[name].specifier, requirement.specifier):
                    assert bounds.contains(metadata.version(name), prereleases=True), (name, bounds)
    assert {"torch", "jaxlib", "envpool-assets", "markupsafe"} <= seen


RUN = ["backend=gymnasium", "total_timesteps=1024", "ppo.num_steps=128", "ppo.num_envs=8", "outputs=runs"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    (built,) = folder.iterdir()
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_package_its_configuration_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ppo_bench").rglob("*.py")}
    yaml = {f"ppo_bench/conf/{path.relative_to(CONF).as_posix()}" for path in CONF.rglob("*.yaml")}
    assert "ppo_bench/conf/config.yaml" in yaml
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ppo_bench" / "commands" / "report").glob("*/*.*")}
    data = {name for name in data if not name.endswith((".py", ".pyc"))}
    assert {"ppo_bench/commands/report/data/scales.csv", "ppo_bench/commands/report/page/template.html"} <= data
    assert {name for name in names if ".dist-info/" not in name} == modules | yaml | data
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_installed_package_runs_anywhere_and_names_its_folder_as_the_clone_does(
    wheel: Path, tmp_path: Path
) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    work.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*pip, str(wheel)], check=True)
    # Dependencies are those of this interpreter; the package comes from where it was just installed.
    environment = os.environ | {"PYTHONPATH": str(site)}

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        return subprocess.run(command, cwd=work, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout

    module = python("-c", "import ppo_bench; print(ppo_bench.__file__)").strip()
    assert module == str(site / "ppo_bench" / "__init__.py")
    assert "ppo_atari_envpool_xla_jax" in python("-m", "ppo_bench", "--help")
    folder = python("-m", "ppo_bench", *RUN).splitlines()[-1]
    assert folder == str(load_config(RUN).run_folder)
    run = json.loads((work / folder / "run.json").read_text())
    assert run["versions"]["ppo-bench"] == wheel.name.split("-")[1]
    assert run["git_commit"] is None
    assert json.loads((work / folder / "result.json").read_text())["status"] == "complete"
