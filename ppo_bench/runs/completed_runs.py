"""Messages about a run that is complete already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import read_json
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import DEFAULT_INFO_KEYS
from ppo_bench.runs.results import read_run_json
from ppo_bench.runs.run_writer import warn_of_differences


def report_completed_run(config: Config, folder: Path, now: dict[str, Any]) -> None:
    """Print the outcome of the complete run in `folder`, and what `config` asks it to record that it has not.

    Warns where the provenance `now` is not that of the run.
    """
    result = read_json(folder / "result.json")
    mean = result.get("final_return_mean")
    return_text = "none" if mean is None else f"{mean:.2f}"
    print_status(f"{folder} is done: final_return_mean {return_text}; rerun=true trains again in a new folder")
    try:
        trained = read_run_json(folder)["config"]
        warn_of_differences(folder, now)
    except ConfigError as error:  # it is complete all the same
        print_status(f"warning: {error}")
        return
    recorded_names = {*((trained.get("env") or {}).get("info") or []), *DEFAULT_INFO_KEYS}
    missing = [f"env.info={name}" for name in config.task.info if name not in recorded_names]
    for group, key in (("evaluation", "every_iterations"), ("video", "every_episodes")):
        asked, before = ((tree.get(group) or {}).get(key) for tree in (config.resolved, trained))
        missing += [f"{group}.{key}={asked}"] if asked and not before else []
    if missing:
        print_status(f"warning: {', '.join(missing)}: it was trained without, and only rerun=true records this")
