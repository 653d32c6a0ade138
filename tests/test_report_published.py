"""The scales that normalise scores, and scores by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ppo_bench.commands.report.published import scale_of, scales, stem
from tests.reports import aggregates, report
from tests.synthetic import write_run


def test_published_scales_are_whole() -> None:
    atari = [scale for scale in scales() if scale.high_is == "human"]
    assert len(atari) == 57
    assert all(scale.high is not None and scale.high > scale.low for scale in atari)
    for env_id in ("BreakoutNoFrameskip-v4", "Breakout-v5", "ALE/Breakout-v5"):
        scale = scale_of(env_id)
        assert scale is not None
        assert (scale.low, scale.high) == (1.7, 30.5)
    assert scale_of("minatar-breakout") is None
    assert scale_of("CartPole-v0") is None  # half as long
    assert stem("CheetahRun-v1") == stem("dm_control/cheetah-run-v0")


def test_human_normalised_scores_by_hand(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for seed in range(1, 6):
        write_run(tmp_path / "o", "pong", "jax_xla", seed, final=14.6)
        write_run(tmp_path / "o", "breakout", "jax_xla", seed, final=1.7 + 2 * 28.8)
    assert report(capfd, tmp_path / "o")[0] == 0
    found = aggregates(tmp_path / "o" / "report")
    assert abs(found["pong", "jax_xla", "normalised_score"][0] - 1) < 1e-12
    assert abs(found["breakout", "jax_xla", "normalised_score"][0] - 2) < 1e-12
    assert abs(found["all", "jax_xla", "normalised_score_mean"][0] - 1.5) < 1e-12
