"""The commands of README, of getting-started.md and of tutorial.md run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import FIRST, run_page


@pytest.mark.slow
@pytest.mark.parametrize("page", FIRST, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
