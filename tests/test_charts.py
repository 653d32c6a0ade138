"""Rows of a run appear in trackers under CleanRL's tags, with CleanRL's meanings."""

from __future__ import annotations

from typing import Any

from ppo_bench.algorithms.rnd import Rnd
from ppo_bench.runs.trackers.charts import Charts


def metrics_row(**columns: float | None) -> dict[str, Any]:
    return {"global_step": 512, "wall_seconds": 2.0, "sps": 9.0, **columns}


def run_of(players: int = 1, **metrics: Any) -> dict[str, Any]:
    """A run.json with tags of `metrics`."""
    return {"config": {"ppo": {"num_envs": 4, "num_steps": 128}, "env": {"players": players}}, "metrics": metrics}


def test_rows_appear_under_the_tags_of_their_run() -> None:
    charts = Charts(run_of(entropy="losses/entropy", own="losses/mine"))
    row = metrics_row(entropy=0.5, clip_fraction=0.25, episodic_return=None, own=2.0, info_success=1.0)
    assert charts.values(row, []) == {
        **{"charts/SPS": 256.0, "charts/SPS_update": 9.0, "losses/entropy": 0.5, "losses/mine": 2.0},
        "info/success": 1.0,
    }


def test_speeds_count_from_the_start_of_the_run_and_returns_over_20_episodes() -> None:
    """Of a run that begins at step 10,000, where another one ended."""
    charts, means = Charts(run_of()), []
    for k in range(1, 4):
        row = metrics_row() | {"global_step": 10_000 + 512 * k, "wall_seconds": 4.0 * k}
        values = charts.values(row, [{"return": float(k), "length": 9, "env": env} for env in range(8)])
        assert values["charts/SPS"] == 128.0
        means.append(values["charts/avg_episodic_return"])
    assert means == [1.0, 1.5, (4 * 1 + 8 * 2 + 8 * 3) / 20]


def test_players_have_charts_of_their_own() -> None:
    episodes = [{"return": float(env), "length": 10 * env, "env": env} for env in (0, 1, 3)]
    values = Charts(run_of(players=2)).values(metrics_row(), episodes)
    returns, lengths = ([values[f"charts/episodic_{what}-player{k}"] for k in (0, 1)] for what in ("return", "length"))
    assert (returns, lengths) == ([0.0, 2.0], [0.0, 20.0])
    assert not any("player" in tag for tag in Charts(run_of()).values(metrics_row(), episodes))


def test_the_value_loss_of_rnd_is_that_of_both_critics() -> None:
    tags: dict[str, Any] = {
        metric.name: metric.tag for metric in Rnd.loss_metrics if metric.name.endswith("value_loss")
    }
    values = Charts(run_of(**tags)).values(metrics_row(value_loss=0.25, intrinsic_value_loss=0.5), [])
    kinds = ("", "extrinsic_", "intrinsic_")
    assert [values[f"losses/{kind}value_loss"] for kind in kinds] == [0.75, 0.25, 0.5]
