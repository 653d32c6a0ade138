"""A user's own environment, algorithm and backend: docs/own.md, as it stands."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training import ENVIRONMENT, ROOT, rows

PAGE = (ROOT / "docs" / "own.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"```bash\n(.*?)```", PAGE, re.S)[0].splitlines()
OWN = (("algorithm", "small_logits", "mine.SmallLogits"), ("backend", "hurried", "mine.Hurried"))
STEPS = "total_timesteps=2048"

pytestmark = pytest.mark.slow


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A folder with the page's files."""
    (classes,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    (tmp_path / "mine.py").write_text(classes)
    for name, text in re.findall(r"`(my_conf/[\w/.]+)`\n\n```yaml\n(.*?)```", PAGE, re.S):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, words: list[str]) -> subprocess.CompletedProcess[str]:
    environment = ENVIRONMENT | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_of_the_page_runs(line: str, written: Path) -> None:
    words = [word for word in shlex.split(line)[1:] if not word.startswith("total_timesteps=")]
    trains = words[1] == "ppo_bench"
    done = run(written, [*words, *([STEPS, "outputs=o"] if trains else [])])
    assert done.returncode == 0, done.stderr
    if trains:
        folder = written / done.stdout.strip()
        result = json.loads((folder / "result.json").read_text())
        assert result["global_step"] == 2048
        config = json.loads((folder / "run.json").read_text())["config"]
        for group, choice, own in OWN:
            assert (config[group]["_target_"] == own) == (f"{group}={choice}" in words)
        assert all(("logit_loss" in row) == ("algorithm=small_logits" in words) for row in rows(folder))
        if "backend=hurried" in words:
            assert max(episode["length"] for episode in rows(folder, "episodes")) == 30


def test_frameworks_train_the_page_s_parts_alike(written: Path) -> None:
    words = "--config-dir my_conf env=cartpole algorithm=small_logits backend=gymnasium"
    done = run(written, ["-m", "ppo_bench.equivalence", *words.split(), STEPS, "outputs=o"])
    assert done.returncode == 0, done.stdout + done.stderr
