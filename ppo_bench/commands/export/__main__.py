"""`python -m ppo_bench.export RUN_DIR [--out DIR]`: a run as a folder for the Hugging Face Hub.

README.md is the model card: returns, the command that trains the same. model.safetensors are the arrays
of the newest checkpoint in the layout that every framework loads, config.json is all that the run recorded of itself,
replay.mp4 a video if the run has one. Whoever downloads the folder plays it by `python -m ppo_bench.evaluate DIR` and
trains it further by checkpoint.load=DIR.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from ppo_bench.commands.export.card import Returns, card
from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import make_folder, read_json, write_safely
from ppo_bench.common.values import file_name
from ppo_bench.configuration.compose import key_of
from ppo_bench.configuration.load import recorded_config
from ppo_bench.runners import checkpoint
from ppo_bench.runs.run_config import read_run

README, VIDEO = "README.md", "replay.mp4"
OWN_TO_THE_MACHINE = (
    *("name", "outputs", "rerun", "tracker", "video", "hydra"),
    *("checkpoint.load", "framework.compile_cache"),
)
"""Keys, with all keys below them, of overrides that say where a run is kept and shown, or what it began with."""


NO_SOURCE = {"load": None, "fine_tune": False}


def main(arguments: list[str]) -> int:
    """Write the folder; print it, and the command that uploads it."""
    parser = Parser("python -m ppo_bench.export", description=__doc__)
    parser.add_argument("run", metavar="RUN_DIR", help="a run folder, or one of its checkpoints, such as .../best")
    parser.add_argument("--out", metavar="DIR", help="where to write (default RUN_DIR/export)")
    options = parser.parse_args(arguments)
    path = checkpoint.find(Path(options.run))
    if checkpoint.is_exported(path):
        raise ConfigError(f"{path} is an exported run already: name the run folder that it was made from")
    saved, run_folder = checkpoint.load_named(path), checkpoint.run_of(path)
    run = read_run(run_folder)
    name = file_name(f"ppo-{recorded_config(run['config'], {}).task.id}")
    folder = Path(options.out) if options.out else run_folder / "export"
    _make_folder(folder)
    export(folder, run_folder, run, path.resolve().name, saved)
    print(folder)
    print(f"hf upload {name} {shlex.quote(str(folder))}")
    return 0


def export(
    folder: Path, run_folder: Path, run: dict[str, Any], checkpoint_name: str, saved: checkpoint.Checkpoint
) -> None:
    """Write the files of an exported run into `folder`, in place of those of an earlier export.

    `run` is what the run recorded of itself; `checkpoint_name` is the folder of the checkpoint `saved`.
    """
    config, words = recorded_config(run["config"], {}), _portable_overrides(run)
    # First, so that an export that was interrupted is known as one, and written again.
    checkpoint.write_exported(folder, run | {"overrides": words, "config": _public(run["config"])}, saved)
    video = _newest_video(run_folder, checkpoint_name)
    if video:
        shutil.copyfile(video, folder / VIDEO)
    else:
        (folder / VIDEO).unlink(missing_ok=True)
    returns = _returns(run_folder, checkpoint_name, saved)
    text = card(config, saved.loop["global_step"], words, returns, VIDEO if video else None)
    write_safely(folder / README, text.encode())


def _make_folder(folder: Path) -> None:
    """Make the folder. Raises `ConfigError` if it cannot be made or holds something else than an earlier export."""
    make_folder(folder, "name another folder by --out")
    if any(folder.iterdir()) and not checkpoint.is_exported(folder):
        raise ConfigError(f"{folder} holds other files: name a new folder by --out")


def _public(config: dict[str, Any]) -> dict[str, Any]:
    """The configuration of a run without the paths and accounts of the machine on which it ran."""
    public = config | {"outputs": "outputs", "tracker": {}, "checkpoint": config["checkpoint"] | NO_SOURCE}
    if "compile_cache" in config["framework"]:
        public["framework"] = config["framework"] | {"compile_cache": None}
    return public


def _portable_overrides(run: dict[str, Any]) -> list[str]:
    """The overrides of a run without those of its machine; `RUN_DIR` stands for a checkpoint that it began with."""
    own = tuple(f"{key}." for key in OWN_TO_THE_MACHINE)
    words = [word for word in run["overrides"] if not f"{key_of(word)}.".startswith(own)]
    return [*words, *(["checkpoint.load=RUN_DIR"] if run["config"]["checkpoint"].get("load") else [])]


def _newest_video(run_folder: Path, checkpoint_name: str) -> Path | None:
    """The video to show: the newest of the checkpoint, or else of the last checkpoint before it that has one."""
    videos = [
        (path.name.partition("-")[0], path.stat().st_mtime, path)
        for path in run_folder.glob("evaluations/iteration_*.mp4")
    ]
    return max((video for video in videos if video[0] <= checkpoint_name), default=(None,))[-1]


def _returns(run_folder: Path, checkpoint_name: str, saved: checkpoint.Checkpoint) -> Returns | None:
    """The returns of the newest evaluation of the checkpoint over more episodes than a video, or else of its last
    training episodes; None without."""
    paths = sorted(run_folder.glob(f"evaluations/{checkpoint_name}-*.json"), key=lambda path: path.stat().st_mtime)
    every = [read_json(path, "remove it, or evaluate again") for path in paths]
    found = [one for one in every if one["episodes"] > 1 and not one.get("against")]
    if found:
        newest = found[-1]
        how = "likeliest" if newest["greedy"] else "sampled"
        return Returns(newest["returns"], f"{newest['episodes']} whole episodes in fresh environments, {how} actions")
    recent = saved.loop["recent_returns"]
    return Returns(recent, f"the last {len(recent)} training episodes, sampled actions") if recent else None


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
