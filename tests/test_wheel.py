"""The installed wheel: it has the package with its configuration and nothing else, and behaves like the clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ppo_bench.common.paths import CONF
from ppo_bench.configuration.load import load_config
from tests.training import ROOT

pytestmark = pytest.mark.slow

RUN = ["backend=gymnasium", "total_timesteps=1024", "ppo.num_steps=128", "ppo.num_envs=8", "outputs=runs"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stdout + process.stderr
    (built,) = folder.iterdir()
    return built


def test_the_wheel_holds_the_package_its_configuration_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ppo_bench").rglob("*.py")}
    yaml = {f"ppo_bench/conf/{path.relative_to(CONF).as_posix()}" for path in CONF.rglob("*.yaml")}
    assert "ppo_bench/conf/config.yaml" in yaml
    data = {path.relative_to(ROOT).as_posix() for path in (ROOT / "ppo_bench" / "commands" / "report").glob("*/*.*")}
    data = {name for name in data if not name.endswith((".py", ".pyc"))}
    assert {"ppo_bench/commands/report/data/references.csv", "ppo_bench/commands/report/page/template.html"} <= data
    assert {name for name in names if ".dist-info/" not in name} == modules | yaml | data
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


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
