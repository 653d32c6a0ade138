"""Several processes share a training: one that dies, hangs or raises ends the run with its reason; resumed, it ends
as it would have. Kills are real, at moments that the run itself shows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.common.errors import FailedRuns, RunError
from ppo_bench.runs.distributed import DistributedRunner
from ppo_bench.runs.ranks import run_ranks
from tests.faults import SECONDS, TWO, command, finish
from tests.processes import children, command_line, count_rows, wait_until
from tests.training import ENVIRONMENT, ROOT, learnt, run_folder

pytestmark = pytest.mark.slow

BEFORE = 7
"""Rows of metrics, of 24 in all, after which something happens to a run: the fifth has a checkpoint."""
TIMEOUT_SECONDS = 8.0
"""Seconds for which a rank waits for another that hangs."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What a run on two devices learns that nothing happens to."""
    run = [*TWO, f"outputs={tmp_path_factory.mktemp('whole')}"]
    ended = finish(run)
    assert ended.returncode == 0, ended.stderr
    return learnt(run_folder(*run))


class Group:
    """A run on two devices, and the processes that it has started."""

    def __init__(self, run: list[str]) -> None:
        self.folder = run_folder(*run)
        self.process = subprocess.Popen(
            command(run), cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for_rows(self, count: int) -> None:
        wait_until(self.process, lambda: count_rows(self.folder) >= count)

    @property
    def ranks(self) -> list[int]:
        """The processes of the two devices."""
        found = [pid for pid in children(self.process.pid) if "spawn_main" in command_line(pid)]
        assert len(found) == 2, found
        return sorted(found)

    def end(self) -> tuple[int, str]:
        """Exit code and last line of stderr, once the run has ended."""
        _, error = self.process.communicate(timeout=SECONDS)
        return self.process.returncode, error.strip().splitlines()[-1]


def _gone(pid: int, seconds: float = SECONDS) -> bool:
    """Whether a process has ended within that time; a zombie has."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not command_line(pid):
            return True
        time.sleep(0.1)
    return False


Start = Callable[[list[str]], Group]
"""Starts a run in a folder of the test, which ends with the test at the latest."""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    groups = []

    def start(run: list[str]) -> Group:
        groups.append(Group([*run, f"outputs={tmp_path}"]))
        return groups[-1]

    yield start
    for group in groups:
        if group.process.poll() is None:
            group.process.kill()
            group.process.communicate()


def in_an_iteration(group: Group) -> None:
    time.sleep(0.05)


def as_a_checkpoint_is_written(group: Group) -> None:
    while not list((group.folder / "checkpoints").glob(".iteration_*.tmp")):
        assert group.process.poll() is None
    # caught in the act, or a moment after it


@pytest.mark.parametrize(("rank", "moment"), [(1, in_an_iteration), (0, as_a_checkpoint_is_written)])
def test_a_rank_that_is_killed_ends_the_run_and_it_goes_on_as_if_it_had_not_been(
    rank: int, moment: Callable[[Group], None], started: Start, whole: Any, tmp_path: Path
) -> None:
    group = started(TWO)
    group.wait_for_rows(BEFORE)
    killed, other = group.ranks[rank], group.ranks[1 - rank]
    moment(group)
    os.kill(killed, signal.SIGKILL)
    code, said = group.end()
    assert code == 1
    assert said.startswith(f"ppo_bench: the process of device {rank} of 2 was killed by SIGKILL; ")
    assert f"{group.folder} is kept up to iteration " in said
    assert _gone(other, 0.1)
    if rank == 0:
        ended = finish([*TWO, f"outputs={tmp_path}"])
        assert ended.returncode == 0, ended.stderr
        assert learnt(group.folder) == whole
        assert not list((group.folder / "checkpoints").glob(".*.tmp"))


def test_a_killed_agent_leaves_no_orphan(started: Start) -> None:
    """tests/test_devices_lockstep.py resumes such a run on one device."""
    group = started(TWO)
    group.wait_for_rows(BEFORE)
    ranks = group.ranks
    group.process.kill()
    assert all(map(_gone, ranks))


def test_a_rank_that_hangs_ends_the_run(started: Start) -> None:
    group = started([*TWO, f"collective_timeout_seconds={TIMEOUT_SECONDS}"])
    group.wait_for_rows(BEFORE)
    ranks = group.ranks
    os.kill(ranks[1], signal.SIGSTOP)
    code, said = group.end()
    assert code == 1
    assert said.startswith("ppo_bench: another process of the training has ended or hangs (")
    assert f"{group.folder} is kept up to iteration " in said
    assert all(_gone(rank, 0.1) for rank in ranks)


def test_a_rank_that_raises_ends_the_run_with_its_own_reason(tmp_path: Path) -> None:
    run = [*TWO, "env.id=tests.broken:RaisesInRank1-v0", f"outputs={tmp_path}"]
    ended = finish(run)
    assert ended.returncode == 1
    said = ended.stderr.strip().splitlines()[-1]
    assert said.startswith("ppo_bench: tests.broken:RaisesInRank1-v0 raises KeyError: 'the environment of rank 1' (")


def wait_for_rank_1() -> None:
    if os.environ["RANK"] == "1":
        raise KeyError("of rank 1")
    time.sleep(SECONDS)


def test_an_error_that_nothing_expects_names_its_device() -> None:
    with pytest.raises(RunError, match=r"^device 1 of 2: KeyError: "):
        run_ranks(2, wait_for_rank_1)


def fail_after_rank_0(folder: Path) -> None:
    if os.environ["RANK"] == "0":
        (folder / "new").write_text(str(os.getpid()))
        (folder / "new").rename(folder / "rank0")
        return
    while not (folder / "rank0").exists():
        time.sleep(0.1)
    _gone(int((folder / "rank0").read_text()))
    raise KeyError("of rank 1")


def test_an_error_counts_though_rank_0_has_ended_well(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"^device 1 of 2: KeyError: "):
        run_ranks(2, fail_after_rank_0, tmp_path)


def test_a_rank_that_ends_without_a_result_is_named() -> None:
    with pytest.raises(RunError, match=r"^the process of device 0 of 2 ended without a result$"):
        run_ranks(2, os._exit, 0)


def test_an_error_of_one_rank_s_environments_is_its_own() -> None:
    """The others do not know of it, and would go on: `FailedRuns` is what all ranks have found."""

    class Failing:
        def iterate(self, state: object) -> object:
            raise FailedRuns({0: "a reward is inf"})

    runner = DistributedRunner.__new__(DistributedRunner)
    vars(runner)["_local_runner"] = Failing()
    with pytest.raises(RunError, match="a reward is inf") as raised:
        runner.iterate(None)
    assert not isinstance(raised.value, FailedRuns)


@pytest.mark.parametrize(
    ("number", "whom"),
    [(signal.SIGUSR2, "agent"), (signal.SIGINT, "rank 1")],
)
def test_a_signal_to_any_process_stops_all_after_the_iteration(
    number: signal.Signals, whom: str, started: Start, whole: Any, tmp_path: Path
) -> None:
    group = started(TWO)
    group.wait_for_rows(BEFORE)
    ranks = group.ranks
    os.kill(group.process.pid if whom == "agent" else ranks[1], number)
    code, said = group.end()
    assert code == 130, said
    assert said.startswith("ppo_bench: stopped after iteration ")
    assert all(_gone(rank, 0.1) for rank in ranks)
    if whom == "rank 1":
        ended = finish([*TWO, f"outputs={tmp_path}"])
        assert ended.returncode == 0, ended.stderr
        assert learnt(group.folder) == whole


def test_torchrun_starts_the_ranks_too(whole: Any, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    run = [*TWO, f"outputs={tmp_path}"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "ppo_bench"]
    short = [*run, "total_timesteps=512"]
    for words, folder in (
        ([*run, "--config-dir", str(tmp_path / "conf")], f"{run_folder(*run)}"),
        ([*short, "rerun=true"], f"{run_folder(*short)}-rerun2"),
    ):
        ended = subprocess.run(
            [*torchrun, *words], check=False, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.strip() == folder
    assert learnt(run_folder(*run)) == whole
