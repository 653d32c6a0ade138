"""docs/cleanrl.md names every flag of CleanRL's PPO scripts, and keys that there are."""

from __future__ import annotations

import re

import pytest

from tests.runners import composed
from tests.training import ROOT

PAGE = (ROOT / "docs" / "cleanrl.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## From its command to ours")[1].split("\n## ")[0]
OF = {"algorithm": "experiment=cleanrl/ppo_rnd_envpool", "network": "experiment=cleanrl/ppo_trxl"}


@pytest.mark.parametrize("key", sorted(set(re.findall(r"`(\w+(?:\.\w+)+)=", TABLE))))
def test_every_key_of_the_table_exists(key: str) -> None:
    group = key.partition(".")[0]
    words = [OF[group]] if group in OF else ["tracker=wandb"] if group == "tracker" else []
    node = composed(*words).resolved
    for part in key.split("."):
        assert part in node, key
        node = node[part]
