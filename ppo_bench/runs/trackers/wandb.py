"""`tracker=wandb`: a run of Weights & Biases, which a resumed training continues."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ppo_bench.common.errors import ConfigError, require
from ppo_bench.runs.trackers.mirror import tagged, tags_of


@dataclass(frozen=True)
class Wandb:
    """`tracker=wandb`; conf/tracker/wandb.yaml explains the options."""

    project: str
    entity: str | None
    mode: str
    group: str | None
    tags: list[str]

    def require(self) -> None:
        """Raise `ConfigError` if an option is out of range."""
        if self.mode not in ("online", "offline"):
            raise ConfigError(f"tracker.wandb.mode={self.mode}: choose online or offline")
        if not self.project.strip():
            raise ConfigError("tracker.wandb.project=: must not be empty")

    def open(self, folder: Path, run: dict[str, Any]) -> WandbRun:
        """The wandb run of the folder, continued if there is one."""
        require("wandb", "wandb", "tracker=wandb")
        import wandb

        experiment = folder.resolve().parent.name
        opened = wandb.init(
            project=self.project,
            entity=self.entity,
            mode=cast(Any, self.mode),
            group=self.group or experiment,
            tags=self.tags,
            name=f"{experiment}-{folder.name}",
            id=_run_id(folder),
            resume="allow",
            dir=folder,
            config={key: run.get(key) for key in ("config", "versions", "git_commit", "hardware", "execution")},
            settings=wandb.Settings(
                silent=True,
                console="off",
                symlink=False,
                x_stats_pid=os.getppid(),  # the training's process, whose use of the machine is recorded
            ),
        )
        return WandbRun(opened, tags_of(run))


class WandbRun:
    """An open run of wandb."""

    def __init__(self, run: Any, tags: dict[str, str]) -> None:
        """`run` is wandb's run; `tags` are the tags of the rows' columns."""
        self._run, self._exit_code, self._tags = run, 1, tags
        # Step up to which the server has earlier rows of this run; offline it is 0, and all rows are written again.
        self._first_step = run.step
        run.define_metric("global_step")
        run.define_metric("*", step_metric="global_step")

    def write(self, rows: Sequence[dict[str, Any]]) -> None:
        """Log the tags of each row at its `global_step`."""
        for row in rows:
            if row["global_step"] >= self._first_step:
                # Committed at once: a later video has its own `global_step`, which would overwrite this row's.
                values = tagged(row, self._tags) | {"global_step": row["global_step"]}
                self._run.log(values, step=row["global_step"], commit=True)

    def show(self, video: Path, global_step: int) -> None:
        """See `Mirror.show`."""
        import wandb

        self._run.log({f"videos/{video.stem}": wandb.Video(str(video), format="mp4"), "global_step": global_step})

    def conclude(self, result: dict[str, Any] | None) -> None:
        """See `Mirror.conclude`; the result becomes the run's summary."""
        self._exit_code = 0 if result else 1
        self._run.summary.update(result or {})

    def close(self) -> None:
        """See `Mirror.close`."""
        self._run.finish(exit_code=self._exit_code)


def _run_id(folder: Path) -> str:
    """The id of the run at wandb, kept in the run's folder: it is unique and stays valid when the folder is moved."""
    path = folder / "wandb" / "run_id"
    if not path.exists() or not path.read_text():  # a full disk leaves an empty file
        path.write_text(secrets.token_hex(4))
    return path.read_text()
