"""docs/cleanrl.md names every flag of CleanRL's PPO scripts, and keys that there are."""

from __future__ import annotations

import re

import pytest

from tests.runners import composed
from tests.training import ROOT

PAGE = (ROOT / "docs" / "cleanrl.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## From its command to ours")[1].split("\n## ")[0]
FLAGS = re.findall(
    r"\S+",
    """
exp-name seed torch-deterministic cuda track wandb-project-name wandb-entity capture-video env-id total-timesteps
learning-rate num-envs num-steps anneal-lr gamma gae-lambda num-minibatches update-epochs norm-adv clip-coef clip-vloss
ent-coef vf-coef max-grad-norm target-kl save-model upload-model hf-entity local-num-envs device-ids backend
update-proportion int-coef ext-coef int-gamma num-iterations-obs-norm-init init-lr final-lr anneal-steps init-ent-coef
final-ent-coef trxl-num-layers trxl-num-heads trxl-dim trxl-memory-length trxl-positional-encoding reconstruction-coef
reward-scaler record-video-step-frequency
""",
)
"""Of the dataclasses `Args` in the scripts of commit fe8d8a03, without what they compute themselves."""
OF = {"algorithm": "experiment=cleanrl/ppo_rnd_envpool", "network": "experiment=cleanrl/ppo_trxl"}


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_has_a_row(flag: str) -> None:
    assert re.search(rf"--(no-)?{flag}\b", TABLE)


@pytest.mark.parametrize("key", sorted(set(re.findall(r"`(\w+(?:\.\w+)+)=", TABLE))))
def test_every_key_of_the_table_exists(key: str) -> None:
    group = key.partition(".")[0]
    words = [OF[group]] if group in OF else ["tracker=wandb"] if group == "tracker" else []
    node = composed(*words).resolved
    for part in key.split("."):
        assert part in node, key
        node = node[part]
