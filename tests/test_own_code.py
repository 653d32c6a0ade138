"""The user's own code in a run's identity: a change of it is another training, for a run, a sweep and the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.common.user_code import configured_objects, configured_user_code, loaded_user_code
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.provenance import provenance
from tests.training import ENVIRONMENT

ALGORITHM = """
from dataclasses import dataclass
from ppo_bench.algorithms.ppo import Ppo
import signs

@dataclass(frozen=True)
class Mine(Ppo):
    def targets(self, *args):
        targets = super().targets(*args)
        return targets._replace(batch={**targets.batch, "advantages": signs.SIGN * targets.batch["advantages"]})
"""
WORDS = ["algorithm._target_=nets.Mine", "device=cpu", "total_timesteps=1024", "outputs=o"]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with an algorithm whose advantages have the sign of another module."""
    (tmp_path / "nets.py").write_text(ALGORITHM)
    (tmp_path / "signs.py").write_text("SIGN = 1.0\n")
    return tmp_path


def run_in(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in the folder, as it ends."""
    path = os.pathsep.join([str(folder), ENVIRONMENT.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "ppo_bench", *WORDS, *words]
    environment = ENVIRONMENT | variables | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)


def test_the_named_modules_and_what_they_import_from_their_folder_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "pack"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "deep" / "__init__.py").write_text("from .inner import Net\n")
    (package / "deep" / "inner.py").write_text("from .. import other\nimport numpy\nclass Net: pass\n")
    (package / "other.py").write_text("import pack.further as f\n")
    (package / "further.py").write_text("")
    (package / "unused.py").write_text("")
    (tmp_path / "wrap.py").write_text("raise SystemExit('is not executed')\n")
    (tmp_path / "game.py").write_text("from deeper import *\n")
    (tmp_path / "functions.py").write_text("def double(reward): return 2 * reward\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    config: dict[str, Any] = {
        "network": {"_target_": "pack.deep.Net"},
        "env": {
            "wrappers": [
                {"_target_": "gymnasium.wrappers.TimeLimit", "arg": {"_target_": "wrap.Wrapper"}},
                {"_target_": "a.B", "func": {"_target_": "hydra.utils.get_method", "path": "functions.double"}},
            ]
        },
        "algorithm": {"_target_": "ppo_bench.algorithms.ppo.Ppo"},
    }

    def digest() -> str | None:
        return configured_user_code(configured_objects(config, "game:Game-v0"))

    changed = [package / "__init__.py", package / "deep" / "__init__.py", package / "deep" / "inner.py"]
    changed += [package / "other.py", package / "further.py", tmp_path / "wrap.py", tmp_path / "game.py"]
    changed += [tmp_path / "functions.py"]
    for path in changed:
        before = digest()
        path.write_text(f"{path.read_text()}# more\n")
        assert digest() != before, path
    before = digest()
    (package / "unused.py").write_text("# more\n")
    assert digest() == before
    plain = {"network": {"_target_": "ppo_bench.networks.spec.Mlp"}}
    assert configured_user_code(configured_objects(plain, "ale_py:ALE/Pong-v5")) is None
    assert configured_user_code(configured_objects(plain, "CartPole-v1")) is None


def test_code_below_pythons_own_folder_is_the_users_but_its_library_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose Python is in /usr and whose work is in /usr/src."""
    (tmp_path / "nets.py").write_text("class Net: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for prefix in ("prefix", "base_prefix", "exec_prefix"):
        monkeypatch.setattr(sys, prefix, str(tmp_path.parent))
    assert configured_user_code(["nets.Net"]) is not None
    assert configured_user_code(["json.decoder.JSONDecoder", "numpy.random.Generator"]) is None
    program = Path(sysconfig.get_path("scripts")) / "ppo-bench"
    assert program.is_file()
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(program), raising=False)
    assert "__main__" not in loaded_user_code()


def test_a_tracker_of_the_user_is_no_part_of_the_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mytrack.py").write_text("from ppo_bench.runs.trackers.tensorboard import Tensorboard as Mine\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_config(["+tracker.mine._target_=mytrack.Mine"]).identity == load_config([]).identity


def test_a_function_may_make_a_part(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (own / "functions.py").write_text("import nets\n\n\ndef made(**options):\n    return nets.Mine(**options)\n")
    monkeypatch.syspath_prepend(str(own))
    monkeypatch.delitem(sys.modules, "nets", raising=False)  # that of another test
    config = load_config(["algorithm._target_=functions.made"])
    assert type(config.algorithm).__name__ == "Mine"
    assert config.identity["algorithm"]["_target_"] == "functions.made"
    assert config.identity["code"] is not None


@pytest.mark.slow
def test_a_run_says_if_code_has_changed_that_no_name_leads_to(own: Path) -> None:
    (own / "nets.py").write_text(f"import importlib\nimportlib.import_module('late')\n{ALGORITHM}")
    (own / "late.py").touch()
    folder = own / run_in(own).stdout.strip()
    own_code = json.loads((folder / "run.json").read_text())["own_code"]
    assert list(own_code) == ["late", "nets", "signs"]  # no package, nothing of ours
    assert "the code of" not in run_in(own).stderr
    (own / "late.py").write_text("# a further thought\n")
    again = run_in(own).stderr
    assert "warning: not what the run started with: the code of late" in again


@pytest.mark.slow
def test_a_run_that_goes_on_under_other_variables_of_a_library_says_so(own: Path) -> None:
    (own / "nets.py").write_text(ALGORITHM)
    folder = own / run_in(own, ATEN_CPU_CAPABILITY="default").stdout.strip()
    recorded = json.loads((folder / "run.json").read_text())["variables"]
    assert recorded["ATEN_CPU_CAPABILITY"] == "default"
    (folder / "result.json").unlink()  # as if it had not finished
    same = run_in(own, ATEN_CPU_CAPABILITY="default", TORCHINDUCTOR_CACHE_DIR=str(own)).stderr
    assert "not what the run started with" not in same
    (folder / "result.json").unlink()
    said = run_in(own, XLA_FLAGS="--xla_cpu_enable_fast_math=true").stderr
    assert "not what the run started with: XLA_FLAGS: none -> --xla_cpu_enable_fast_math=true" in said
    assert "ATEN_CPU_CAPABILITY: default -> none" in said


def test_the_packages_of_what_a_configuration_names_are_recorded() -> None:
    versions = provenance(["supersuit.frame_stack_v1", "ppo_bench.algorithms.ppo.Ppo", "nowhere.Net"])["versions"]
    assert versions["SuperSuit"] == metadata.version("supersuit")
    assert versions.keys() - provenance()["versions"].keys() == {"SuperSuit"}
