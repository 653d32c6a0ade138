"""Published results in a report, and the scales that normalise scores."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.commands.report.published import references, references_of, scale_of, scales
from tests.reports import aggregates, read_table, report
from tests.synthetic import write_run


def test_ours_stand_beside_what_is_published(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    as_long = {"config.total_timesteps": 500_000}
    for seed in range(1, 6):
        write_run(tmp_path / "o", "cartpole", "torch_eager", seed, final=490.04 + seed - 3, changes=as_long)
        write_run(tmp_path / "o", "breakout", "torch_eager", seed)
    assert report(capfd, tmp_path / "o")[0] == 0
    found = read_table(tmp_path / "o" / "report" / "tables" / "references.csv")
    (cleanrl,) = [row for row in found if row["published by"] == "CleanRL ppo"]
    assert cleanrl["published return"] == "490.0 ± 6.120 (3)"
    assert cleanrl["return"].startswith("490.0 ± 1.581 (5)")
    assert cleanrl["source"].startswith("https://docs.cleanrl.dev")
    published = {row["published by"] for row in found if row["env"] == "breakout"}
    assert {"CleanRL ppo_atari", "CleanRL ppo_atari_envpool"} <= published
    by_cleanrl = [row for row in found if row["published by"] == "CleanRL ppo_atari_envpool"]
    assert [(row["steps"], row["their steps"]) for row in by_cleanrl] == [("102400", "10000000")]


def test_published_data_are_whole() -> None:
    assert len(references()) == 39
    assert all(reference.source.startswith("https://") for reference in references())
    atari = [scale for scale in scales() if scale.high_is == "human"]
    assert len(atari) == 57
    assert all(scale.high is not None and scale.high > scale.low for scale in atari)
    for env_id in ("BreakoutNoFrameskip-v4", "Breakout-v5", "ALE/Breakout-v5"):
        scale = scale_of(env_id)
        assert scale is not None
        assert (scale.low, scale.high) == (1.7, 30.5)
    assert scale_of("minatar-breakout") is None
    assert scale_of("CartPole-v0") is None  # half as long
    assert {reference.env for reference in references_of("CheetahRun-v1")} == {"dm_control/cheetah-run-v0"}
    assert references_of("Nothing-v0") == []


def test_human_normalised_scores_by_hand(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(1, 6):
        write_run(tmp_path / "o", "pong", "jax_xla", seed, final=14.6)
        write_run(tmp_path / "o", "breakout", "jax_xla", seed, final=1.7 + 2 * 28.8)
    assert report(capfd, tmp_path / "o")[0] == 0
    found = aggregates(tmp_path / "o" / "report")
    assert abs(found["pong", "jax_xla", "normalised_score"][0] - 1) < 1e-12
    assert abs(found["breakout", "jax_xla", "normalised_score"][0] - 2) < 1e-12
    assert abs(found["all", "jax_xla", "normalised_score_mean"][0] - 1.5) < 1e-12
