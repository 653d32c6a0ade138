"""README and docs/: every block of commands is marked and is a configuration; files and keys that they name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import ppo_bench.commands.bench.__main__  # it and the next one register the schemas of their keys
import ppo_bench.commands.equivalence.__main__  # noqa: F401
from ppo_bench.configuration.compose import compose_root, compose_with_hydra
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import expand, swept_words
from tests.documented import PAGES, Block, blocks, trainings
from tests.runners import composed
from tests.training import ROOT

BLOCKS = [block for page in PAGES for block in blocks(page)]


def named(value: Path | Block) -> str:
    return value.place if isinstance(value, Block) else value.name


def test_every_block_says_its_language_and_what_the_tests_do_with_it() -> None:
    assert [block.place for block in BLOCKS if not block.language] == []
    assert [block.place for block in BLOCKS if block.language == "bash" and not block.kind] == []
    assert [block.place for block in BLOCKS if block.kind in ("composed", "slurm", "not run") and not block.words] == []


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.kind in ("run", "composed")], ids=named)
def test_the_words_of_a_block_are_a_configuration(block: Block) -> None:
    for name, words in trainings(block):
        own = [word for word in words if not word.startswith(("hydra.", "hydra/"))]
        if name == "bench":
            compose_root(name, *expand(own, first=True))
        else:
            (first,) = expand(own, first=True)
            (first,) = expand(swept_words(compose_with_hydra("config", first).hydra, own), first=True)
            config = load_config(first)
            if block.kind == "composed":
                config.require()
                config.backend.make(config.task).close()


def test_no_page_names_a_file_that_is_gone() -> None:
    gone = {
        f"{page.name}: {name}"
        for page in PAGES
        for name in re.findall(r"`((?:ppo_bench|conf|tests|launch)/[\w/]+\.(?:py|yaml|sh))`", page.read_text())
        if not (ROOT / name).exists()
    }
    assert gone == set()


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
