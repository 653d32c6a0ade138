"""docs/results.md and docs/results/: one command makes them from the stored rows, and verdicts are checked by hand."""

from __future__ import annotations

import csv
import importlib
import json
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
    blocks = ("summary", "verdicts", "frameworks", "backends", "unpublished", "trained", "switches")
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
    assert "2 of 36 published rows have a verdict, for each backend and framework that trained them: " in page
    assert "2 equivalent, 1 different." in page
    # With endless seeds of ours the error is that of three published ones. The margin is 5% of 475 - 22.2.
    limits = float(same["endless"]), float(same["margin"])
    assert limits == pytest.approx((2.92 * 6.12 / 2**0.5, 0.05 * (475 - 22.2)), abs=0.01)
    assert page.endswith("<!-- /switches -->\nend\n")
    assert (docs / "results" / "classic-cartpole-gymnasium.svg").exists()


def test_the_table_of_what_campaigns_took_counts_programs_once_and_resumes_by_hand(docs: Path, tmp_path: Path) -> None:
    changes = {"config.name": "campaign/classic", "config.total_timesteps": 2_000_000}
    for seed in (1, 2, 3):
        path = write_run(tmp_path / "o", "cartpole", "jax_xla", seed, 8, changes=changes) / "result.json"
        # Seeds 1 and 2 are of one program of two hours; seed 3 ran alone for half an hour.
        result = json.loads(path.read_text()) | {"wall_seconds": 7200.0 if seed < 3 else 1800.0}
        path.write_text(json.dumps(result | ({"resumes": 3} if seed == 3 else {})))
    results(tmp_path / "o", "--docs", docs)
    assert "| classic | 3 | 6 | 2.5 | 3, in 1 of the runs |" in (docs / "results.md").read_text()


def test_another_precision_is_another_row(docs: Path, tmp_path: Path) -> None:
    changes = {"config.name": "campaign/classic", "config.total_timesteps": 500_000}
    for precision, final in (("float32", 480.0), ("bfloat16", 400.0)):
        rounded = changes | {"config.precision": precision}
        for seed in (1, 2):
            write_run(tmp_path / precision, "cartpole", "torch_eager", seed, 8, final=final, changes=rounded)
    results(tmp_path / "float32", tmp_path / "bfloat16", "--docs", docs)
    found = {row["precision"]: (row["seeds"], row["ours_mean"]) for row in verdicts(docs) if row["framework"]}
    assert found == {"float32": ("2", "480.00"), "bfloat16": ("2", "400.00")}
    page = (docs / "results.md").read_text()
    assert "| torch_eager, gymnasium | 2 | 480.00" in page
    assert "| torch_eager, gymnasium, bfloat16 | 2 | 400.00" in page
    assert "torch_eager, bfloat16" in (docs / "results" / "classic-cartpole-gymnasium.svg").read_text()


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


def test_another_version_of_an_environment_is_shown_and_not_judged(docs: Path, tmp_path: Path) -> None:
    changes = {"config.name": "campaign/continuous", "config.total_timesteps": 1_000_000}
    for seed, version in ((1, "v4"), (2, "v5"), (3, "v5")):
        run = changes | {"config.env.ids": {"gymnasium": f"Pusher-{version}"}}
        write_run(tmp_path / "o", "pusher", "torch_eager", seed, 8, final=-40.0, changes=run)
    results(tmp_path / "o", "--docs", docs)
    found = [row for row in verdicts(docs) if row["env"] == "Pusher-v4"]
    told = [(row["seeds"], row["verdict"], row["low"] == "") for row in found]
    assert told == [("1", "undecided", False), ("2", "another version, Pusher-v5", True)]
    assert "1 of 36 published rows have a verdict" in (docs / "results.md").read_text()
    picture = (docs / "results" / "continuous-pusher-gymnasium.svg").read_text()
    assert "torch_eager, Pusher-v4" in picture
    assert "torch_eager, Pusher-v5" in picture


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


def test_simulators_are_compared_by_hand(docs: Path, tmp_path: Path) -> None:
    changes: dict[str, object] = {"config.name": "campaign/continuous", "config.total_timesteps": 1_000_000}
    for backend, finals in (("gymnasium", (52.0, 50.0, 54.0)), ("envpool", (30.0, 32.0, 34.0))):
        for seed, final in enumerate(finals, 1):
            run = changes | {"config.backend.name": backend, "config.env.ids": {backend: "Hopper-v4"}}
            write_run(tmp_path / backend, "hopper", "torch_compile", seed, 8, final=final, changes=run)
    results(tmp_path / "gymnasium", tmp_path / "envpool", "--docs", docs)
    first, second = (line for line in (docs / "results.md").read_text().splitlines() if line.startswith("| Hopper-v4"))
    assert first == "| Hopper-v4 | torch_compile | envpool | 3 | 32.00 ± 2.00 |  |  |"
    # The standard error is 2 sqrt(2 / 3), and t of 4 degrees at 95% is 2.132.
    assert second.startswith("| Hopper-v4 | torch_compile | gymnasium | 3 | 52.00 ± 2.00 | +20.00 [+16.52, +23.48] | ")


def test_a_campaign_that_nobody_published_is_listed(docs: Path, tmp_path: Path) -> None:
    changes: dict[str, object] = {"config.name": "campaign/minatar", "config.total_timesteps": 10_000_000}
    for seed, final in enumerate((10.0, 12.0, 14.0), 1):
        write_run(tmp_path / "o", "minatar_breakout", "jax_xla", seed, 8, final=final, changes=changes)
    write_run(tmp_path / "p", "cartpole", "jax_xla", 1, 8, changes={"config.name": "campaign/classic"})
    results(tmp_path / "o", tmp_path / "p", "--docs", docs)
    _, _, after = (docs / "results.md").read_text().partition("<!-- unpublished -->\n")
    assert after.partition("<!--")[0].splitlines()[2:] == [
        "| minatar_breakout-v0 | jax_xla, gymnasium | 10 | 3 | 12.00 ± 2.00 |"
    ]


def test_a_campaign_over_switches_is_compared_by_hand(docs: Path, tmp_path: Path) -> None:
    common = {"config.name": "campaign/minatar_pair", "config.ppo.mask_resets": True, "config.ppo.clip_vloss": True}
    common |= {"config.ppo.bootstrap_truncated": False}
    for seed, final in enumerate((10.0, 12.0, 14.0), 1):
        write_run(tmp_path / "o", "minatar_breakout", "jax_xla", seed, 8, final=final, changes=common)
        unclipped, later = common | {"config.ppo.clip_vloss": False}, final + (22.0, 18.0, 20.0)[seed - 1]
        write_run(tmp_path / "p", "minatar_breakout", "jax_xla", seed, 8, final=later, changes=unclipped)
    results(tmp_path / "o", tmp_path / "p", "--docs", docs)
    page = (docs / "results.md").read_text()
    first, second = (line for line in page.splitlines() if line.startswith("| minatar_breakout"))
    assert "| clip_vloss, mask_resets, no bootstrap_truncated | 3 | 12.00 ± 2.00 |" in first
    # Seed by seed the differences are 22, 18 and 20, whose deviation is 2: the standard error is 2 / sqrt(3), and t of
    # 2 degrees at 95% is 2.920.
    assert (
        "| no clip_vloss, mask_resets, no bootstrap_truncated | 3 | 32.00 ± 2.00 | +20.00 [+16.63, +23.37] |" in second
    )
    assert "0 of 36 published rows have a verdict" in page
    assert (docs / "results" / "minatar_pair-minatar_breakout-gymnasium.svg").exists()


def test_what_is_left_out_is_said(
    docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run without an episode, one that is damaged, and folders without a campaign's run."""
    changes: dict[str, object] = {"config.name": "campaign/classic"}
    for seed in (1, 2, 3):
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed, 8, changes=changes)
    none, damaged = (tmp_path / "o" / f"default/cartpole-gymnasium-torch_eager-0a1b2c3d/seed{seed}" for seed in (2, 3))
    about = json.loads((none / "result.json").read_text())
    (none / "result.json").write_text(json.dumps(about | {"final_return_mean": None}))
    (damaged / "run.json").write_text("{")
    write_run(tmp_path / "p", "cartpole")
    monkeypatch.chdir(tmp_path)
    assert code_of_results("--docs", docs, "p") == 2
    assert "p: no finished run of a campaign (experiment=campaign/...) is there" in capsys.readouterr().err
    results("--docs", docs, "o")
    said = capsys.readouterr().err
    assert f"left out: {none.relative_to(tmp_path)}: no episode has ended" in said
    assert f"left out: {damaged.relative_to(tmp_path)}: " in said
    kept = duckdb.connect().execute(f"select seed from read_parquet('{docs / 'results' / 'runs.parquet'}')").fetchall()
    assert kept == [(1,)]
