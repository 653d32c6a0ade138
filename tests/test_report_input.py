"""`ppo_bench.report` with wrong arguments, unusable folders and full disks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ppo_bench.commands.report.__main__ import main
from ppo_bench.commands.report.database import open_database
from tests.refusals import assert_one_line, assert_refused
from tests.reports import aggregates, report
from tests.synthetic import write_run, write_sweep


def test_a_folder_without_runs_is_exit_code_2(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, printed, errors = report(capfd, tmp_path)
    assert (code, printed) == (2, "")
    assert_one_line(errors, f"there are no runs in {tmp_path}")
    code, _, errors = report(capfd, tmp_path / "nothing")
    assert code == 2
    assert_one_line(errors, "is not a folder")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--baseline", "tensorflow"], "--baseline tensorflow: no run has it; choose one of torch_eager"),
        (["--by", "ppo.gamma"], "--by ppo.gamma: the runs do not differ in it; they differ in the seed"),
    ],
    ids=str,
)
def test_wrong_arguments_are_one_line(
    arguments: list[str], fragment: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "o")
    assert_refused(main, [str(tmp_path / "o"), *arguments], fragment, capfd)
    assert [path.name for path in tmp_path.iterdir()] == ["o"]


BROKEN = {
    "no run.json": ("run.json", None, "run.json is damaged ([Errno 2] No such file"),
    "no configuration": ("run.json", b'{"schema_version": 1, "config": {}}', "run.json does not describe a run"),
    "another schema": ("run.json", b'{"schema_version": 2}', "run.json has schema_version 2; 1 can be read"),
    "garbage metrics": ("metrics.jsonl", bytes(range(256)) * 50, "it has not finished an iteration yet"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_folder_is_named_and_left_out(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    name, content, reason = BROKEN[kind]
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",), seeds=2)
    broken = write_run(tmp_path / "o", seed=3)
    if content is None:
        (broken / name).unlink()
    else:
        (broken / name).write_bytes(content)
    code, _, errors = report(capfd, tmp_path / "o")
    assert code == 0
    (line,) = [line for line in errors.splitlines() if f"left out: {broken}: " in line]
    assert reason in line
    assert f"left out: {broken}" in (tmp_path / "o" / "report" / "report.html").read_text()
    assert aggregates(tmp_path / "o" / "report")["cartpole", "torch_eager", "final_return_mean"][3] == 2
    # Alone, it is nothing to report on.
    code, _, errors = report(capfd, broken)
    assert code == 2
    assert_one_line(errors, reason)


@pytest.mark.parametrize("line", ["not a row", "{}", "null"])
def test_damaged_episodes_of_an_unfinished_run_are_named(
    line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "o")
    broken = write_run(tmp_path / "o", seed=2, finished=False)
    with open(broken / "episodes.jsonl", "a") as file:
        file.write(f"{line}\n")
    code, _, errors = report(capfd, tmp_path / "o")
    assert code == 0
    assert f"{broken}: episodes.jsonl is damaged: " in errors


def test_a_run_that_has_just_begun_again_hides_no_rows(tmp_path: Path) -> None:
    same = {"config.total_timesteps": 51_200}
    began, again = (same | {"started": f"2026-01-0{day}T00:00:00+00:00"} for day in (1, 2))
    first = write_run(tmp_path / "o", iterations=50, finished=False, changes=began)
    write_run(tmp_path / "o", iterations=0, finished=False, folder="again/seed1-rerun2", changes=again)
    database = open_database([str(tmp_path / "o")])
    assert [run.path for run in database.runs] == [first]
    assert list(database.left_out.values()) == ["it has not finished an iteration yet"]


@pytest.mark.parametrize("after", [[], ["the next one"]], ids=["the last", "another"])
def test_a_line_that_is_cut_is_not_used(after: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(tmp_path / "o", iterations=100)
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:60]) + lines[60][:40] + (b"\n" + lines[61] if after else b""))
    code, _, errors = report(capfd, tmp_path / "o")
    assert code == 0
    assert f"{folder}: 1 lines of metrics.jsonl are cut or damaged and not used" in errors
    database = open_database([str(tmp_path / "o")])
    assert database.connection.execute("select count(*) from metrics").fetchall() == [(60 + len(after),)]


def test_two_runs_with_one_identity_are_named_and_the_finished_one_is_kept(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_sweep(tmp_path / "o", ("cartpole",), ("torch_eager",), seeds=2)
    again = write_run(tmp_path / "o", seed=2, folder="default/x/seed9", final=400.0)
    shutil.rmtree(tmp_path / "o" / "default" / "x" / "seed9")
    original = tmp_path / "o/default/cartpole-gymnasium-torch_eager-0a1b2c3d/seed2"
    shutil.copytree(original, again)
    (original / "result.json").unlink()
    code, _, errors = report(capfd, tmp_path / "o", tmp_path / "o" / "default")
    assert code == 0
    assert f"left out: {original}: it claims to be the same run as {again} (seed 2), which is kept" in errors
    assert aggregates(tmp_path / "o" / "report")["cartpole", "torch_eager", "final_return_mean"][3] == 2


def test_an_older_report_is_replaced(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "o")
    out = tmp_path / "r"
    assert report(capfd, tmp_path / "o", "--out", out)[0] == 0
    write_run(tmp_path / "o", seed=2)
    assert report(capfd, tmp_path / "o", "--out", out)[0] == 0
    assert aggregates(out)["cartpole", "torch_eager", "final_return_mean"][3] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o", "r"]
    (tmp_path / "file").write_text("")
    for other in (tmp_path / "file", Path("/proc/x")):
        code, _, errors = report(capfd, tmp_path / "o", "--out", other)
        assert code == 2
        assert_one_line(errors.splitlines(keepends=True)[-1], f"cannot write to {other}")
        assert errors.endswith("; choose another folder by --out\n")
