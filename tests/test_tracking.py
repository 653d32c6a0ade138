"""What a tracker that missed the end of a run is given, and how long wandb is waited for."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

from ppo_bench.runs.trackers.tracking import Trackers, lacks_result
from ppo_bench.runs.trackers.wandb import FINISH_SECONDS, Wandb


class Noted(NamedTuple):
    """A tracker that notes its calls, and its open run."""

    calls: list[str]
    fails: list[str]

    def open(self, *_: object) -> Noted:
        self.calls.append("open")
        return self

    def log(self, *_: object) -> None:
        pass

    def log_video(self, path: Path, global_step: int) -> None:
        self.calls.append(path.name)

    def finish(self, result: object) -> None:
        self.calls.append("with a result" if result else "without a result")
        if self.fails:
            raise RuntimeError(self.fails.pop())


def test_a_tracker_gets_the_rest_of_a_finished_run_once(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "seed1"))
    tracker = Noted([], ["the network"])
    result = (folder / "result.json").rename(tmp_path / "result.json")
    Trackers(cast(Any, {"mine": tracker}), folder).finish()  # fails as well
    assert lacks_result(folder, "mine")
    result.rename(folder / "result.json")
    for expected in (["open", "without a result", "open", "with a result"], []):
        if lacks_result(folder, "mine"):
            Trackers(cast(Any, {"mine": tracker}), folder).finish()
        assert tracker.calls == expected
        tracker.calls.clear()
    (folder / "older").mkdir()  # as earlier versions have left it
    assert not lacks_result(folder, "older")


def test_a_video_is_logged_once_however_often_its_run_is_resumed(finished: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished, tmp_path / "seed1"))
    tracker = Noted([], [])
    (folder / "evaluations").mkdir(exist_ok=True)
    for name in ("first", "second"):
        (folder / "evaluations" / f"{name}.mp4").touch()
        (folder / "evaluations" / f"{name}.json").write_text('{"global_step": 512}')
        for _ in range(2):
            Trackers(cast(Any, {"mine": tracker}), folder).finish()
    assert [call for call in tracker.calls if call.endswith(".mp4")] == ["first.mp4", "second.mp4"]


def test_a_wandb_server_that_takes_no_rows_is_not_waited_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    given = dict[str, Any]()

    def finish(exit_code: int) -> None:
        raise TimeoutError("Timed out finishing run.")

    def init(**words: Any) -> SimpleNamespace:
        given.update(words)
        return SimpleNamespace(starting_step=0, summary={}, define_metric=lambda *_, **__: None, finish=finish)

    monkeypatch.setattr("wandb.init", init)
    Wandb(None, None, None, None, [], None, None).open(tmp_path, {}).finish({"mean_sps": 1.0})
    assert given["settings"].finish_timeout == FINISH_SECONDS
    assert given["settings"].finish_timeout_raises
    assert "warning: tracker=wandb did not finish within 30 s; `wandb sync` uploads the rest" in capfd.readouterr().err
