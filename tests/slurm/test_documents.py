"""The commands of docs/slurm.md, as they stand there, on the cluster of these tests."""

from __future__ import annotations

from pathlib import Path

from tests.documented import blocks, run
from tests.slurm.cluster import wait_for_an_empty_queue
from tests.slurm.conftest import python
from tests.training import ROOT


def test_the_commands_of_the_page_submit_the_runs_that_they_promise(tmp_path: Path) -> None:
    marked = [block for block in blocks(ROOT / "docs" / "slurm.md") if block.kind == "slurm"]
    said = [run(block, tmp_path) for block in marked]
    assert [done.returncode for done in said] == [0, 0], said
    launched, several_nodes = (done.stderr.splitlines() for done in said)
    assert launched[0].startswith("ppo_bench: 6 of 6 runs would be submitted")
    assert launched[1].startswith("ppo_bench: 6 of 6 runs submitted")
    assert "1 of 1 runs would be submitted, 1 job of 2 nodes" in several_nodes[-1]
    wait_for_an_empty_queue()
    status = python("launch/status.py", str(tmp_path / "outputs")).stdout
    assert status.splitlines()[-1] == "6 runs: 6 done, 0 running, 0 queued, 0 failed", status
