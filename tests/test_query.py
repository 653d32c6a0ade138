"""`ppo_bench.query`: SQL over run folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ppo_bench.commands.query import main
from ppo_bench.common.cli import exit_code
from tests.refusals import assert_refused
from tests.synthetic import write_run, write_sweep
from tests.training import rows


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    write_sweep(tmp_path / "o[1]", seeds=2, iterations=20)
    return tmp_path / "o[1]"


def query(capfd: pytest.CaptureFixture[str], sql: str, *arguments: object) -> str:
    assert exit_code(main, [sql, *map(str, arguments)]) == 0
    return capfd.readouterr().out


def test_runs_metrics_and_episodes_can_be_asked(outputs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    sql = "select framework, count(*) as runs from runs group by 1 order by 1"
    assert query(capfd, sql, outputs).splitlines() == [
        "framework      runs",
        "jax_xla           4",
        "torch_compile     4",
        "torch_eager       4",
    ]
    sql = (
        "select env, seed, count(*), max(iteration) from metrics where framework = 'jax_xla' group by all order by all"
    )
    file = outputs.parent / "rows.csv"
    query(capfd, f"copy ({sql}) to '{file}'", outputs)
    assert file.read_text().splitlines()[1:] == [
        "acrobot,1,20,20", "acrobot,2,20,20", "cartpole,1,20,20", "cartpole,2,20,20",
    ]  # fmt: skip
    sql = 'select count(*) as episodes, max("return") < 600 as low, null as nothing from episodes'
    assert query(capfd, sql, outputs).splitlines()[1].split() == ["240", "True", "null"]


def test_columns_of_newer_versions_are_there(outputs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(outputs, seed=9, iterations=3)
    newer = [
        row
        | {
            "curiosity": 0.5,
            "info_Success.Rate": 0.25,
            "SPS": 1,
            "seed": 3,
            'a"b': 0,
        }
        for row in rows(folder)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in newer))
    assert query(capfd, "select sum(curiosity) from metrics", outputs).split()[-1] == "1.5"
    assert query(capfd, 'select sum("info_Success.Rate") from metrics', outputs).split()[-1] == "0.75"


def test_lines_that_are_cut_are_no_rows(outputs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = write_run(outputs, seed=9, iterations=3)
    for name in ("metrics", "episodes"):
        with open(folder / f"{name}.jsonl", "a") as file:
            file.write('{"iteration": 4, "global_st')
    assert query(capfd, "select count(*) from metrics where seed = 9", outputs).split()[-1] == "3"
    assert query(capfd, "select count(*) from episodes where seed = 9", outputs).split()[-1] == "3"


@pytest.mark.parametrize(
    ("sql", "fragment"),
    [
        ("select nothing from runs", 'column "nothing" not found'),
        ("", "'' holds no statement; the views"),
    ],
)
def test_a_wrong_query_is_one_line(sql: str, fragment: str, outputs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "the views are runs, metrics, episodes" in assert_refused(main, [sql, str(outputs)], fragment, capfd)


def test_a_folder_without_runs_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = f"there are no runs in {tmp_path}: name a folder that outputs= named, or a run's\n"
    assert_refused(main, ["select 1", str(tmp_path)], said, capfd)
