"""The commands of the other pages of docs/ run as they stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documented import FIRST, PAGES, blocks, run_page

OTHERS = [page for page in PAGES if page not in FIRST and any(block.kind == "run" for block in blocks(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", OTHERS, ids=lambda page: page.name)
def test_the_blocks_of_a_page_run(page: Path, tmp_path: Path) -> None:
    run_page(page, tmp_path)
