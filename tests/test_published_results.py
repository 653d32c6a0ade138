"""docs/results.md and docs/results/: one command makes them from the stored rows, and verdicts are checked by hand."""

from __future__ import annotations

import csv
import importlib
import shutil
from pathlib import Path

import duckdb
import pytest

from ppo_bench.common.cli import exit_code
from tests.synthetic import write_run
from tests.training import ROOT

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def launch_is_on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a script of launch/, which imports the files next to it."""
    monkeypatch.syspath_prepend(ROOT / "launch")


def code_of_results(*words: object) -> int:
    """The exit code of `launch/results.py` with `words`."""
    return exit_code(importlib.import_module("results").main, list(map(str, words)))


def results(*words: object) -> None:
    assert code_of_results(*words) == 0


def verdicts(docs: Path) -> list[dict[str, str]]:
    with open(docs / "results" / "verdicts.csv", newline="") as file:
        return list(csv.DictReader(file))


def test_published_data_are_whole() -> None:
    references = importlib.import_module("verdicts").references()
    assert len(references) == 36
    assert all(reference.source.startswith("https://") for reference in references)


def test_what_is_committed_is_what_the_command_makes(tmp_path: Path) -> None:
    shutil.copytree(DOCS, tmp_path / "docs")
    for path in (tmp_path / "docs" / "results").glob("*.svg"):
        path.unlink()
    results("--docs", tmp_path / "docs")
    committed, made = (
        {path.relative_to(docs): path for path in docs.rglob("*") if path.is_file()}
        for docs in (DOCS, tmp_path / "docs")
    )
    assert set(made) == set(committed)
    texts = [name for name in made if name.suffix != ".svg"]  # how matplotlib draws is up to its version
    assert [str(name) for name in texts if made[name].read_bytes() != committed[name].read_bytes()] == []
    assert sum(path.stat().st_size for path in (DOCS / "results").glob("*.parquet")) < 5_000_000


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    (tmp_path / "docs" / "results").mkdir(parents=True)
    blocks = ("summary", "verdicts", "frameworks", "backends", "unpublished", "trained")
    page = "# Results\n" + "".join(f"<!-- {name} -->\nold\n<!-- /{name} -->\n" for name in blocks) + "end\n"
    (tmp_path / "docs" / "results.md").write_text(page)
    return tmp_path / "docs"


def test_verdicts_of_runs_by_hand(docs: Path, tmp_path: Path) -> None:
    changes = {"config.name": "campaign/classic", "config.total_timesteps": 500_000}
    for seed in range(1, 7):
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed, 8, final=490.04 + (seed - 3.5) / 10, changes=changes)
        write_run(tmp_path / "o", "cartpole", "jax_xla", seed, 8, final=300.0 + seed, changes=changes)
    write_run(tmp_path / "o", "acrobot", "torch_eager", 1, 8, final=-86.0, changes=changes)
    longer = changes | {"config.total_timesteps": 600_000}
    write_run(tmp_path / "o", "mountain_car", "torch_eager", 1, 8, changes=longer)
    results(tmp_path / "o", "--docs", docs)
    found = {(row["env"], row["framework"]): row for row in verdicts(docs)}
    same, other = found["CartPole-v1", "torch_eager"], found["CartPole-v1", "jax_xla"]
    # Published is 490.04 ± 6.12 of three: standard error 6.12 / sqrt(2), and Student's t of 2 degrees at 95% is 2.92.
    assert (same["ours_mean"], same["verdict"], same["seeds"]) == ("490.04", "equivalent", "6")
    assert float(same["high"]) == pytest.approx(2.92 * 6.12 / 2**0.5, rel=0.01)
    assert other["verdict"] == "different"
    assert float(other["ours_mean"]) == pytest.approx(303.5)
    # One seed beside -86.36 ± 1.32, the result of three seeds: the standard error is
    # 1.32 x sqrt(3 / 2) x sqrt(1 + 1 / 3).
    one = found["Acrobot-v1", "torch_eager"]
    assert (one["seeds"], one["verdict"]) == ("1", "equivalent")
    assert float(one["high"]) == pytest.approx(0.36 + 2.92 * 1.32 * 2**0.5, abs=0.01)
    assert found["MountainCar-v0", "torch_eager"]["verdict"] == "other number of steps"
    assert found["Hopper-v4", ""]["verdict"] == "not trained"
    page = (docs / "results.md").read_text()
    assert "| CartPole-v1, gymnasium | jax_xla, torch_eager | 6 | -186.54" in page
    assert (
        "2 of 36 published rows are trained. Their verdicts, one for each backend and framework that trained them: "
        in page
    )
    assert "2 equivalent, 1 different." in page
    # With endless seeds of ours the error is that of three published ones. The margin is 5% of 475 - 22.2.
    limits = float(same["endless"]), float(same["margin"])
    assert limits == pytest.approx((2.92 * 6.12 / 2**0.5, 0.05 * (475 - 22.2)), abs=0.01)
    assert page.endswith("<!-- /trained -->\nend\n")
    assert (docs / "results" / "classic-cartpole-gymnasium.svg").exists()


def test_rows_of_runs_whose_folders_are_gone_stay(docs: Path, tmp_path: Path) -> None:
    changes = {"config.name": "campaign/classic", "config.total_timesteps": 500_000}
    for seed, folder in ((1, "first"), (2, "second")):
        write_run(tmp_path / folder, "cartpole", "torch_eager", seed, 8, final=100.0 * seed, changes=changes)
        results(tmp_path / folder, "--docs", docs)
    shutil.rmtree(tmp_path / "second")
    write_run(tmp_path / "second", "cartpole", "torch_eager", 2, 8, final=300.0, changes=changes)  # made again
    results(tmp_path / "second", "--docs", docs)
    (row,) = [row for row in verdicts(docs) if row["framework"]]
    assert (row["seeds"], row["ours_mean"]) == ("2", "200.00")
    curves = f"select distinct seed from read_parquet('{docs / 'results' / 'curves.parquet'}') order by seed"
    assert duckdb.connect().execute(curves).fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config.ppo.learning_rate": 1.0}, "have different settings: name runs of one setting"),
        ({"config.tuning": {"channels_last": False}}, "would be one row: name one of them"),
    ],
)
def test_runs_that_are_not_one_experiment_are_not_pooled(
    change: dict[str, object],
    message: str,
    docs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes: dict[str, object] = {"config.name": "campaign/classic", "config.total_timesteps": 500_000}
    for seed, more in ((1, {}), (2, {}), (2, change)):
        outputs = tmp_path / ("others" if more else "o")
        write_run(outputs, "cartpole", "torch_eager", seed, 8, changes=changes | more)
    monkeypatch.chdir(tmp_path)
    assert code_of_results("o", "others", "--docs", docs) == 2
    done = capsys.readouterr()
    assert done.out == ""
    (line,) = done.err.splitlines()
    assert message in line
    assert not (docs / "results" / "runs.parquet").exists()
