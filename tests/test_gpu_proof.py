"""`make gpu-proof`, rehearsed without a GPU: the words of every check."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.commands.bench.programs import load as load_bench
from ppo_bench.commands.equivalence.command import load as load_equivalence
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import expand
from tests import gpu_parts, gpu_race
from tests.gpu_checks import LeftOut
from tests.gpu_checks import Unshown as NotShown
from tests.gpu_parts import Proof
from tests.training import ROOT

pytestmark = pytest.mark.slow

LOADS: dict[str, Callable[[list[str]], Any]] = {
    "ppo_bench": load_config,
    "ppo_bench.bench": lambda words: [load_bench(job) for job in expand(words)],
    "ppo_bench.equivalence": load_equivalence,
}


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
