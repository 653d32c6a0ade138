"""`python -m ppo_bench.evaluate RUN_DIR... [overrides]`: how good is a run's policy, in any framework?

It loads the newest checkpoint, and plays whole episodes with frozen normalisation statistics and unclipped rewards.
For each run it prints a table and writes
`RUN_DIR/evaluations/<checkpoint>-<backend>-<framework>-<hash>.json`; video=true adds an mp4 of one episode.
conf/evaluate.yaml explains the overrides.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from hydra.core.config_store import ConfigStore

from ppo_bench.common.cli import Parser, exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, make_folder, write_json
from ppo_bench.common.progress import PLAIN_INTERVAL_SECONDS, print_status
from ppo_bench.common.values import AT_LEAST_1, check_ranges, digest, file_name, within
from ppo_bench.configuration.compose import compose_root
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import to_schema, values_of
from ppo_bench.configuration.schema import FOLDER, SEED, with_free_keys
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.runners import checkpoint
from ppo_bench.runners.base import Episode
from ppo_bench.runs.play import load_agent, play
from ppo_bench.runs.provenance import provenance
from ppo_bench.runs.run_config import load_run, read_run
from ppo_bench.runs.video.record_video import record_video
from ppo_bench.runs.video.scene import draw_off_screen, open_scene


@dataclass
class EnvChanges:
    """The key `env`: how the environment differs from that of the training."""

    kwargs: dict[str, Any] | None


@dataclass
class Request:
    """The keys of conf/evaluate.yaml; it explains them."""

    episodes: int = field(metadata=AT_LEAST_1)
    num_envs: int = field(metadata=AT_LEAST_1)
    greedy: bool
    seed: int = field(metadata=SEED)
    video: bool
    precision: str | None
    device: str
    outputs: str | None = field(metadata=FOLDER)
    against: str | None = field(metadata=within(lambda value: value == "random", "choose random, or leave it out"))
    framework: Any
    backend: Any
    env: EnvChanges


ConfigStore.instance().store("Request", with_free_keys(Request, "env.kwargs"))


class Evaluated(NamedTuple):
    """A checkpoint that is to be evaluated, with its run's configuration as the request changes it."""

    run: Path
    """The folder that was named: of the run, or of the checkpoint."""
    path: Path
    config: Config
    file: Path
    """The JSON file of results; the video lies beside it."""


def main(arguments: list[str]) -> int:
    """Evaluate checkpoints, print a table of each, and write JSON files and, with video=true, videos."""
    parser = Parser("python -m ppo_bench.evaluate", description=__doc__)
    parser.add_argument(
        "words",
        nargs="+",
        metavar="RUN_DIR",
        help="a run folder, or one of its checkpoints/iteration_<k>; after it overrides such as "
        "episodes=10 num_envs=10 greedy=true seed=1 video=true framework=... backend=...",
    )
    words = parser.parse_args(arguments).words
    runs = [word for word in words if "=" not in word or Path(word).is_dir()]
    if not runs:
        raise ConfigError("RUN_DIR is missing: name a run's folder before the overrides")
    request = load_request([word for word in words if word not in runs])
    if request.video:
        draw_off_screen()
    every = [_found(Path(run), request) for run in runs]  # so that a wrong one is said before any is played
    if len({each.file for each in every}) < len(every):
        raise ConfigError("two of these would write the same file: evaluate them one after the other")
    means = [_evaluate(each, request) for each in every]
    if len(means) > 1 and len({each.config.task.name for each in every}) == 1:
        print(f"{len(means)} runs: {statistics.fmean(means):.2f} on average, std {statistics.pstdev(means):.2f}")
    return 0


def _found(run: Path, request: Request) -> Evaluated:
    path = checkpoint.find(run)
    run_folder = checkpoint.run_of(path)
    changes = {key: getattr(request, key) for key in ("framework", "backend", "precision", "device")}
    if request.env.kwargs:
        trained = read_run(run_folder)["config"]["env"]
        changes["env"] = trained | {"kwargs": (trained.get("kwargs") or {}) | request.env.kwargs}
    config = load_run(run_folder, changes)
    if request.against and config.task.players == 1:
        raise ConfigError(f"against={request.against}: {config.task.id} is for one player; leave against= out")
    # Absolute paths, since an environment may change the current folder.
    return Evaluated(run.absolute(), path.resolve(), config, _file(path, run_folder, config, request).absolute())


def _evaluate(one: Evaluated, request: Request) -> float:
    """Mean return of a checkpoint; plays it, prints its table and the paths of its files, and writes these."""
    if not one.path.exists():  # its run, which is training, has pruned it
        one = _found(one.run, request)
    config, file, saved = one.config, one.file, checkpoint.load_named(one.path)
    players = config.task.players if request.against else 1
    task = config.task.with_num_envs(request.num_envs * players)
    with ExitStack() as opened:
        env = opened.enter_context(closing(to_vector_env(make_env(config.backend, task))))
        agent = load_agent(config, saved, env, request.greedy, request.seed)
        scene = open_scene(config, env) if request.video else None
        if scene:
            opened.callback(scene.env.close)
        make_folder(file.parent)
        playing = play(env, agent, request.episodes, request.seed, against_random=bool(request.against))
        episodes = list(_with_progress(playing, request.episodes))
        about = _summary(one, saved, request, episodes) | provenance()
        write_json(file, about)  # before the video, which may fail
        if scene:
            about["video"] = record_video(
                scene, agent, request.seed, file.with_suffix(".mp4"), against_random=bool(request.against)
            )
            write_json(file, about)
    _print_table(about)
    if request.video:
        print(file.with_suffix(".mp4"))
    print(file, flush=True)
    return float(about["return_mean"])


def load_request(overrides: list[str]) -> Request:
    """The request that the command line's `overrides` describe. Raises `ConfigError` if one is out of range."""
    request: Request = to_schema(values_of(compose_root("evaluate", overrides)), Request)
    check_ranges(request)
    return replace(request, num_envs=min(request.num_envs, request.episodes))


def _file(path: Path, run_folder: Path, config: Config, request: Request) -> Path:
    """Path of the JSON file: its name has checkpoint, backend, framework, and a hash of all that affects the result."""
    identity = asdict(request) | {key: config.resolved[key] for key in ("framework", "backend", "precision")}
    unused = {"outputs": True, "video": True, "env": not request.env.kwargs, "against": not request.against}
    for key in (key for key, is_unused in unused.items() if is_unused):  # so that names of older files stay
        del identity[key]
    elsewhere = ["elsewhere"] if request.env.kwargs else []  # such returns are not those of the trained task
    folder = run_folder / "evaluations"
    if request.outputs is not None:
        identity["run"] = str(run_folder.resolve())  # others may have a folder of the same name
        folder = Path(request.outputs).expanduser() / "evaluations" / run_folder.parent.name / run_folder.name
    names = (*elsewhere, path.resolve().name, config.backend.name, config.framework.name, digest(identity))
    return folder / ("-".join(file_name(name) for name in names) + ".json")


def _with_progress(episodes: Iterator[Episode], total: int) -> Iterator[Episode]:
    last = time.monotonic()
    for number, episode in enumerate(episodes, 1):
        yield episode
        if number < total and time.monotonic() - last >= PLAIN_INTERVAL_SECONDS:
            last = time.monotonic()
            print_status(f"{number} of {total} episodes")


def _summary(one: Evaluated, saved: checkpoint.Checkpoint, request: Request, episodes: list[Episode]) -> dict[str, Any]:
    """Content of the JSON file. Episodes are sorted by environment, then by time."""
    config = one.config
    ordered = sorted(episodes, key=lambda episode: (episode.env, episode.step))
    returns, lengths = [e.episode_return for e in ordered], [e.length for e in ordered]
    return {
        "schema_version": SCHEMA_VERSION,
        "env": config.task.name,
        "env_id": config.task.id,
        "env_kwargs": config.task.kwargs,
        "backend": config.backend.name,
        "framework": config.framework.name,
        "precision": config.root.precision,
        "device": config.root.device,
        "training_seed": config.root.seed,
        "checkpoint": one.path.name,
        "iteration": saved.loop["iteration"],
        "global_step": saved.loop["global_step"],
        "seed": request.seed,
        "greedy": request.greedy,
        "against": request.against,
        "num_envs": request.num_envs,
        "episodes": len(returns),
        "return_mean": statistics.fmean(returns),
        "return_std": statistics.pstdev(returns),
        "return_min": min(returns),
        "return_max": max(returns),
        "info": {name: _mean_info(ordered, name) for name in sorted({name for e in ordered for name in e.info})},
        "length_mean": statistics.fmean(lengths),
        "returns": returns,
        "lengths": lengths,
        "envs": [e.env for e in ordered],
        "video": None,
    }


def _mean_info(episodes: list[Episode], name: str) -> float:
    return statistics.fmean(episode.info[name] for episode in episodes if name in episode.info)


def _print_table(about: dict[str, Any]) -> None:
    actions = "likeliest actions" if about["greedy"] else "sampled actions"
    actions += " against random play" if about["against"] else ""
    given = "".join(f", {name}={value}" for name, value in about["env_kwargs"].items())
    print(
        f"{about['env']} ({about['env_id']}{given}) on {about['backend']}, {about['framework']}, {about['precision']}, "
        f"after iteration {about['iteration']} ({about['global_step']:,} steps), {actions}, seed {about['seed']}"
    )
    print(f"{'episodes':>8}{'return mean':>14}{'std':>11}{'min':>11}{'max':>11}{'length mean':>14}")
    mean, std, low, high = (about[f"return_{name}"] for name in ("mean", "std", "min", "max"))
    print(f"{about['episodes']:>8}{mean:>14.2f}{std:>11.2f}{low:>11.2f}{high:>11.2f}{about['length_mean']:>14.1f}")
    for name, mean in about["info"].items():
        print(f"{name}: {mean:.3g} on average as episodes ended")


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
