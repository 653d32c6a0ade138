"""`make gpu-proof`, rehearsed without a GPU: the words of every check."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.commands.bench.config import load as load_bench
from ppo_bench.commands.equivalence.config import load as load_equivalence
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import expand
from tests import gpu_parts, gpu_proof, gpu_race
from tests.gpu_checks import Check, LeftOut
from tests.gpu_checks import Unshown as NotShown
from tests.gpu_parts import Proof
from tests.training import ROOT

pytestmark = pytest.mark.slow

LOADS: dict[str, Callable[[list[str]], Any]] = {
    "ppo_bench": load_config,
    "ppo_bench.bench": lambda words: [load_bench(job) for job in expand(words)],
    "ppo_bench.equivalence": lambda words: [load_equivalence(job) for job in expand(words)],
}

Make = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes the checks of some parts as the command does: its exit code, and what it wrote of each check."""

    def make(parts: dict[str, list[Check]], *words: str) -> tuple[int, list[dict[str, Any]]]:
        monkeypatch.setattr(Proof, "parts", lambda _: parts)
        monkeypatch.setattr(sys, "argv", ["gpu_proof", "--device", "cpu", "--out", str(tmp_path), *words])
        code = gpu_proof.main()
        return code, json.loads((tmp_path / "gpu-proof.json").read_text())["checks"]

    return make


def test_a_check_is_made_by_the_command_that_it_names(make: Make) -> None:
    words = ["env=cartpole", "precision=float64", "framework=torch_eager,jax_xla"]
    same = Check("frameworks", Proof("cpu", few=True).equivalent(*words, steps=(20_480, 2048)))
    code, (row,) = make({"same": [same]})
    assert (code, row["came of it"]) == (0, "shown")
    assert row["figures"]["jax_xla"]["differing_actions"] == 0


@pytest.mark.parametrize(("device", "few"), [("cuda", False), ("cpu", True)])
def test_every_check_has_a_name_of_its_own_and_words_that_are_a_configuration(
    device: str, few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = []
    seconds = itertools.cycle((0.0, 0.01))  # the longer of two runs is the second

    def speed_of_a_peer(*_: object) -> str:
        time.sleep(next(seconds))
        return "1e6"

    def noted(words: Sequence[str], *_: Any) -> str:
        commands.append(words)
        raise NotShown("it is noted alone")

    monkeypatch.setattr(gpu_parts, "ran", noted)
    monkeypatch.setattr(gpu_race, "ran", noted)
    monkeypatch.setattr(gpu_race, "_output_of", speed_of_a_peer)
    monkeypatch.setenv("PEER_PYTHON", sys.executable)
    for variable in ("PUREJAXRL", "CLEANRL", "LEANRL"):
        monkeypatch.setenv(variable, str(tmp_path))
    parts = Proof(device, few).parts()
    assert list(parts) == ["same", "speed", "training", "end_to_end", "race", "breakout"]
    names = [check.name for checks in parts.values() for check in checks]
    assert len(set(names)) == len(names) > 20
    for position, check in enumerate(check for checks in parts.values() for check in checks):
        (own := tmp_path / str(position)).mkdir()
        with pytest.raises((NotShown, LeftOut)):
            check.show(own)
    assert len(commands) >= len(names) - 1  # on a CPU one is left out
    for _, module, *words in commands:
        if module == "pytest":
            assert [word for word in words if word.startswith("tests/") and not (ROOT / word).exists()] == []
        else:
            LOADS[module](words)
