"""What a command prints about a run that is complete already."""

from __future__ import annotations

from pathlib import Path

from omegaconf import OmegaConf

from ppo_bench.common.files import read_json
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config
from ppo_bench.runs.record import warn_of_differences

ADDED = ("env.info", "evaluation.every_iterations", "video.every_episodes")
"""Keys that add to what a run records without being part of its identity."""


def report_finished(config: Config, folder: Path) -> None:
    """Print the outcome of the complete run in `folder`, and what `config` asks it to record that it has not."""
    result = read_json(folder / "result.json")
    mean = result.get("final_return_mean")
    shown = "none" if mean is None else f"{mean:.2f}"
    say(f"{folder} is done: final_return_mean {shown}; rerun=true trains afresh beside it")
    asked, trained = (OmegaConf.create(each) for each in (config.resolved, read_json(folder / "run.json")["config"]))
    missing = [
        f"{key}={value}"
        for key in ADDED
        if (value := OmegaConf.select(asked, key)) and value != OmegaConf.select(trained, key)
    ]
    if missing:
        say(f"warning: {', '.join(missing)}: it was trained without, and only rerun=true records this")
    warn_of_differences(folder)
