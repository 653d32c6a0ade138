"""`ppo_bench.report --by KEY`: values of a hyperparameter in place of frameworks; and heat maps of two."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ppo_bench.commands.report.database import open_database
from tests.reports import read_table, report
from tests.synthetic import write_run

RATES = (0.001, 0.00025)


def write(outputs: Path, env: str, framework: str, seed: int, final: float, **ppo: float) -> None:
    folder = f"default/{env}-{framework}-{'-'.join(map(str, ppo.values()))}/seed{seed}"
    changes = {f"config.ppo.{key}": value for key, value in ppo.items()}
    write_run(outputs, env, framework, seed, 100, final=final, folder=folder, changes=changes)


def write_rates(outputs: Path) -> Path:
    """12 runs: two learning rates, two frameworks, three seeds."""
    for rate, framework, seed in itertools.product(RATES, ("torch_eager", "jax_xla"), (1, 2, 3)):
        write(outputs, "cartpole", framework, seed, 1e5 * rate + seed, learning_rate=rate)
    return outputs


def charts(page: Path) -> Any:
    """The data of the page's charts."""
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page.read_text())
    return json.loads(data)


def test_a_learning_rate_is_a_line_for_each_value_in_order(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outputs = write_rates(tmp_path / "o")
    code, printed, _ = report(capfd, outputs, "--by", "ppo.learning_rate")
    assert code == 0
    assert printed.splitlines()[0].split()[:3] == ["env", "algorithm", "ppo.learning_rate"]
    for figure in charts(outputs / "report" / "report.html")[:2]:  # a panel for each framework
        assert [series["name"] for series in figure[0]["series"]] == ["0.00025", "0.001"]
    found = read_table(outputs / "report" / "tables" / "summary.csv")
    rows = [(row["env"], row["ppo.learning_rate"], float(row["final return"])) for row in found]
    tasks = ("cartpole framework=jax_xla", "cartpole framework=torch_eager")
    assert rows == [(task, rate, mean) for task in tasks for rate, mean in (("0.00025", 27.0), ("0.001", 102.0))]
    pairs = read_table(outputs / "report" / "tables" / "equivalence.csv")
    assert [(row["ppo.learning_rate"], row["compared with"]) for row in pairs] == [("0.001", "0.00025")] * 2
    report(capfd, outputs, "--by", "ppo.learning_rate", "--baseline", "0.001")
    pairs = read_table(outputs / "report" / "tables" / "equivalence.csv")
    assert [(row["ppo.learning_rate"], row["compared with"]) for row in pairs] == [("0.00025", "0.001")] * 2


def test_sizes_of_a_batch_that_do_not_divide_the_steps_are_one_task(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """10,000 steps are 9,728 in iterations of 512 and 9,984 in those of 128."""
    for num_steps, seed in itertools.product((128, 32), (1, 2)):
        changes = {"config.ppo.num_steps": num_steps, "config.total_timesteps": 10_000}
        write_run(tmp_path / "o", seed=seed, iterations=19, folder=f"{num_steps}/seed{seed}", changes=changes)
    assert report(capfd, tmp_path / "o", "--by", "ppo.num_steps")[0] == 0
    (chart, *_), *_ = charts(tmp_path / "o" / "report" / "report.html")
    assert [series["name"] for series in chart["series"]] == ["32", "128"]
    found = read_table(tmp_path / "o" / "report" / "tables" / "summary.csv")
    assert [row["env"] for row in found] == ["cartpole", "cartpole"]


@pytest.mark.parametrize("by", ["framework", "ppo.learning_rate"])
def test_charts_have_the_numbers_of_the_database(by: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Of 12 runs with 100 iterations, which are the 100 cells of the grid."""
    outputs = write_rates(tmp_path / "o")
    report(capfd, outputs, "--by", by)
    drawn: dict[str, list[Any]] = {}
    for figure in charts(outputs / "report" / "report.html"):
        for chart in figure:
            drawn.setdefault(chart["title"], []).append(chart)
    rows = {
        column: open_database([str(outputs)]).connection.execute(
            f"select framework, setting->>'ppo.learning_rate', avg({column}) from metrics "
            "join runs using (folder, framework) group by 1, 2, iteration order by iteration"
        ).fetchall()
        for column in ("episodic_return", "entropy")
    }  # fmt: skip
    for title, column in (("by environment steps", "episodic_return"), ("entropy", "entropy")):
        expected = {
            (framework, rate): [mean for *of, mean in rows[column] if of == [framework, rate]]
            for framework in ("torch_eager", "jax_xla")
            for rate in ("0.001", "0.00025")
        }
        means = [series["curve"]["mean"] for chart in drawn[title] for series in chart["series"]]
        assert len(means) == 4
        for mean in means:
            assert any(np.allclose(mean, each, rtol=1e-4, atol=1e-4) for each in expected.values())
    speeds = open_database([str(outputs)]).connection.execute(
        "select avg(steady_sps) from runs group by framework, setting->>'ppo.learning_rate'"
    ).fetchall()  # fmt: skip
    bars = sorted(row["value"][0] for chart in drawn["steady speed"] for row in chart["rows"])
    np.testing.assert_allclose(bars, sorted(mean for (mean,) in speeds), rtol=1e-4)


def test_values_are_compared_over_environments(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """By hand: scores 0.8, 1, 1, 0 and 0, 0.2, 0.5, 0.5; the middle two count."""
    finals = {
        ("alpha", 0.9): (8.0, 10.0),
        ("alpha", 0.99): (0.0, 2.0),
        ("beta", 0.9): (100.0, 0.0),
        ("beta", 0.99): (50.0, 50.0),
    }
    for (env, gamma), values in finals.items():
        for seed, final in enumerate(values, 1):
            write(tmp_path / "o", env, "torch_eager", seed, final, gamma=gamma)
    report(capfd, tmp_path / "o", "--by", "ppo.gamma")
    tables = tmp_path / "o" / "report" / "tables"
    found = {row["ppo.gamma"]: float(row["IQM"]) for row in read_table(tables / "over_envs.csv")}
    assert found == pytest.approx({"0.9": 0.9, "0.99": 0.35})
    rows = [row for row in read_table(tables / "aggregate.csv") if row["metric"] == "probability_of_improvement"]
    improvement = {row["env"]: float(row["point"]) for row in rows}
    assert improvement == pytest.approx({"alpha": 0.0, "beta": 0.5, "all": 0.25})


@pytest.mark.slow
def test_two_hyperparameters_have_a_heat_map(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for rate, gamma, seed in itertools.product((0.001, 0.00025, 0.01), (0.99, 0.9), (1, 2)):
        if (rate, gamma) != (0.01, 0.9):
            write(
                tmp_path / "o",
                "cartpole",
                "jax_xla",
                seed,
                1e5 * rate + 10 * gamma + seed,
                learning_rate=rate,
                gamma=gamma,
            )
    report(capfd, tmp_path / "o", "--png")
    *_, (chart,) = [each for each in charts(tmp_path / "o" / "report" / "report.html") if "values" in each[0]]
    assert (chart["y"], chart["x"]) == (["0.00025", "0.001", "0.01"], ["0.9", "0.99"])
    np.testing.assert_allclose(
        np.array(chart["values"], float), [[35.5, 36.4], [110.5, 111.4], [np.nan, 1011.4]], rtol=1e-4
    )
    assert "<td>1,011</td>" in re.sub(r'<td style="[^"]*">', "<td>", (tmp_path / "o/report/report.html").read_text())
    assert (tmp_path / "o" / "report" / "figures" / "heat_maps.png").exists()


@pytest.mark.parametrize("key", ["algorithm", "algorithm.name"])
def test_algorithms_are_compared(key: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for name in ("ppo", "rnd"):
        changes = {"config.algorithm": {"_target_": f"ppo_bench.algorithms.{name}.X", "name": name}}
        write_run(tmp_path / "o", folder=f"default/{name}/seed1", changes=changes)
    report(capfd, tmp_path / "o", "--by", key)
    found = read_table(tmp_path / "o" / "report" / "tables" / "runs.csv")
    assert len(found) == 2
    with open(tmp_path / "o" / "report" / "tables" / "summary.csv") as file:
        assert file.readline().startswith("env,algorithm,algorithm,")
        assert [line.split(",")[:3] for line in file] == [["cartpole", "ppo", "ppo"], ["cartpole", "rnd", "rnd"]]


def test_two_ids_of_one_name_are_two_tasks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As CoinRun has in Procgen's modes."""
    for mode in ("Easy", "Hard"):
        write_run(tmp_path / mode, "coinrun", changes={"config.env.ids": {"gymnasium": f"Coinrun{mode}-v0"}})
    code, printed, _ = report(capfd, tmp_path)
    assert code == 0
    assert [line.split()[:2] for line in printed.splitlines()[1:3]] == [
        ["coinrun", f"env.id=Coinrun{mode}-v0"] for mode in ("Easy", "Hard")
    ]
