"""`tracker=wandb`: a run of Weights & Biases, which a resumed training continues."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from ppo_bench.common.errors import require
from ppo_bench.common.progress import print_status
from ppo_bench.common.values import within

MODES = ("online", "offline", "disabled")
FINISH_SECONDS = 30.0
"""Time that the end of a run waits for wandb to upload what is left, in seconds."""


@dataclass(frozen=True)
class Wandb:
    """`tracker=wandb`; conf/tracker/wandb.yaml explains the options. What is null is left to wandb's own settings."""

    project: str | None
    entity: str | None
    mode: str | None = field(
        metadata=within(lambda value: value in MODES, f"choose {', '.join(MODES[:-1])} or {MODES[-1]}")
    )
    group: str | None
    tags: list[str]
    notes: str | None
    job_type: str | None

    def open(self, folder: Path, run: Mapping[str, Any]) -> WandbRun:
        """The wandb run of the folder, continued if there is one."""
        require("wandb", "wandb", "tracker=wandb")
        import wandb

        experiment = folder.resolve().parent.name
        opened = wandb.init(
            project=self.project or _set_default_variable("WANDB_PROJECT", "ppo_bench"),
            entity=self.entity,
            mode=cast(Any, self.mode),
            group=self.group or _set_default_variable("WANDB_RUN_GROUP", experiment),
            tags=self.tags or None,
            notes=self.notes,
            job_type=self.job_type,
            name=_set_default_variable("WANDB_NAME", f"{experiment}-{folder.name}"),
            id=_set_default_variable("WANDB_RUN_ID", _run_id(folder)),
            resume=cast(Any, _set_default_variable("WANDB_RESUME", "allow")),
            dir=_set_default_variable("WANDB_DIR", str(folder)),
            config={key: run.get(key) for key in ("config", "versions", "git_commit", "hardware", "execution")},
            reinit="create_new",  # the seeds of one program have a run each
            settings=wandb.Settings(
                console=cast(Any, _set_default_variable("WANDB_CONSOLE", "off")),
                finish_timeout=FINISH_SECONDS,
                finish_timeout_raises=True,
            ),
        )
        return WandbRun(opened)


class WandbRun:
    """An open run of wandb, an `OpenTracker`."""

    def __init__(self, run: Any) -> None:
        """`run` is wandb's run."""
        self._run = run
        self._first_step = run.starting_step  # The server has the earlier rows of a resumed run.
        run.define_metric("global_step")
        run.define_metric("*", step_metric="global_step")

    def log(self, values: Mapping[str, float], global_step: int, wall_time: float) -> None:
        """See `OpenTracker.log`."""
        if global_step >= self._first_step:
            self._run.log({**values, "global_step": global_step}, step=global_step, commit=True)

    def log_video(self, path: Path, global_step: int) -> None:
        """See `OpenTracker.log_video`."""
        import wandb

        self._run.log({f"videos/{path.stem}": wandb.Video(str(path), format="mp4"), "global_step": global_step})

    def finish(self, result: Mapping[str, Any] | None) -> None:
        """See `OpenTracker.finish`; the result becomes the run's summary. Waits for the server for a limited time."""
        self._run.summary.update(result or {})
        try:
            self._run.finish(exit_code=0 if result else 1)
        except TimeoutError:
            print_status(
                f"warning: tracker=wandb did not finish within {FINISH_SECONDS:g} s; `wandb sync` uploads the rest"
            )


def _set_default_variable(variable: str, value: str) -> str | None:
    """`value`; None, which leaves the setting to wandb, if the environment variable is set."""
    return None if os.environ.get(variable) else value


def _run_id(folder: Path) -> str:
    """The id of the run at wandb, kept in the run's folder: it is unique and stays valid when the folder is moved."""
    path = folder / "wandb" / "run_id"
    if not path.exists() or not path.read_text():  # a full disk leaves an empty file
        path.parent.mkdir(exist_ok=True)
        path.write_text(secrets.token_hex(4))
    return path.read_text()
