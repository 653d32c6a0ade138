"""The process that films one episode of a training, by the policy of a checkpoint. `filmer.py` starts it.

python -m ppo_bench.runs.video [CHECKPOINT FILE]; standard input has the run's configuration as a line of JSON and stays
open for as long as the video is wanted. Writes FILE, an mp4, and a JSON file about it beside it. Without arguments it
only checks whether the environment can be drawn.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from ppo_bench.common.cli import exit_code
from ppo_bench.common.files import SCHEMA_VERSION, write_json
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import recorded_config
from ppo_bench.runners.checkpoint import load_named
from ppo_bench.runs.play import load_agent, play
from ppo_bench.runs.video.filmed import FilmedEnv, draw_off_screen, film


def main(arguments: list[str]) -> int:
    """Film the episode, or without arguments check that the environment can be drawn."""
    # The policy runs on the CPU, since the training may need all of a GPU, and in float32, which every CPU supports.
    config = recorded_config(json.loads(sys.stdin.readline()), {"device": "cpu", "precision": "float32"})
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    draw_off_screen()
    asked = f"video.every_episodes={config.root.video.every_episodes}"
    env = film(config, Path(arguments[1] if arguments else os.devnull), asked)
    try:
        if arguments:
            _film(config, Path(arguments[0]), Path(arguments[1]), env)
    finally:
        env.close()
    return 0


def _film(config: Config, checkpoint: Path, file: Path, env: FilmedEnv) -> None:
    """Record one episode. Actions are sampled as in training; every video of a run uses the same seed."""
    saved, seed = load_named(checkpoint), config.root.seed
    agent = load_agent(config, saved, env, greedy=False, seed=seed)
    (episode,) = play(env, agent, 1, seed)
    env.mp4.finish()
    about = {
        "schema_version": SCHEMA_VERSION,
        "iteration": saved.loop["iteration"],
        "global_step": saved.loop["global_step"],
        "episodes": saved.loop["episodes"],
        "return": episode.episode_return,
        "length": episode.length,
        "frames": env.mp4.frames,
        "fps": env.mp4.fps,
    }
    write_json(file.with_suffix(".json"), about)


def _end_with_stdin() -> None:
    """End this process when the training ends, which holds the other end of standard input."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    os._exit(1)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
