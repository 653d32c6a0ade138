"""`python -m ppo_bench.equivalence [overrides]`: do the frameworks do the same?

mode=lockstep (default): one framework leads a training; in every iteration each other one starts from the leader's
state, sees the same environment steps, and must choose the same actions and arrive at the same parameters.
mode=free: each trains alone from the seed; how long do the actions stay the same, and how do the parameters part?
(Training is chaotic: rounding is amplified without bound, so free runs part in the end.)

Exit 0 when every action was the same and, in lockstep, the parameters within tolerance; else 1.
"""

from __future__ import annotations

import itertools
import multiprocessing
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.cli import Parser, exit_code
from ppo_bench.config import Config, load_config
from ppo_bench.envs.base import GraphEnv, Step, VectorEnv
from ppo_bench.envs.replay import RecordingEnv, ReplayEnv
from ppo_bench.errors import ConfigError
from ppo_bench.paths import CONF
from ppo_bench.progress import say
from ppo_bench.results import SCHEMA_VERSION, write_json
from ppo_bench.runners.base import Arrays, Problem, Runner

TOLERANCES = {"float32": 1e-4, "float64": 1e-10}
"""Largest relative distance of a framework's parameters from the leader's after one iteration in lockstep."""
ACTION_TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
"""Continuous actions closer than this count as the same."""


class Outcome(NamedTuple):
    """What one framework did in one iteration."""

    actions: np.ndarray
    before: Arrays
    after: Arrays
    steps: Step | None


class Difference(NamedTuple):
    """How one framework's iteration differs from the leader's."""

    actions: int
    """Actions that are not the same."""
    first: int | None
    """Environment steps of the iteration before the first of them."""
    parameters: float
    """Norm of the difference of all parameters over their norm."""


def main(arguments: list[str]) -> int:
    """Run the comparison, print a table, write `equivalence.json` and a plot; 1 if the frameworks differ."""
    parser = Parser("python -m ppo_bench.equivalence", description=__doc__)
    parser.add_argument(
        "overrides", nargs="*", help="as for a run; and mode=lockstep|free, frameworks=a,b (leader first)"
    )
    options = {"mode": "lockstep", "frameworks": ""}
    overrides = []
    for argument in parser.parse_args(arguments).overrides:
        key, _, value = argument.partition("=")
        if key in options:
            options[key] = value
        else:
            overrides.append(argument)
    if options["mode"] not in ("lockstep", "free"):
        raise ConfigError(f"mode={options['mode']}: choose lockstep or free")
    config = load_config(overrides)
    config.backend.require()
    frameworks = options["frameworks"].split(",") if options["frameworks"] else _installed(overrides)
    if len(frameworks) < 2:
        raise ConfigError(f"frameworks={','.join(frameworks)}: at least two are to be compared")
    for framework in frameworks:
        load_config([*overrides, f"framework={framework}"]).require()
    rows = list(compare(config, overrides, frameworks, options["mode"]))
    return _report(config, frameworks, options["mode"], rows)


def _installed(overrides: list[str]) -> list[str]:
    """The frameworks whose packages are there; the first leads."""
    names = []
    for name in sorted(
        (path.stem for path in (CONF / "framework").glob("*.yaml")), key=lambda n: (n != "torch_eager", n)
    ):
        try:
            load_config([*overrides, f"framework={name}"]).require()
            names.append(name)
        except ConfigError as reason:
            say(f"left out: {reason}")
    return names


def compare(config: Config, overrides: list[str], frameworks: list[str], mode: str) -> Iterator[dict[str, Difference]]:
    """The differences of every framework from the first, iteration by iteration."""
    spawn = multiprocessing.get_context("spawn")  # a process each: flags, threads and caches must not leak
    connections, processes = [], []
    for index, framework in enumerate(frameworks):
        ours, theirs = spawn.Pipe()
        follows = mode == "lockstep" and index > 0
        arguments = (theirs, [*overrides, f"framework={framework}"], follows)
        processes.append(spawn.Process(target=_work, args=arguments, daemon=True))
        processes[-1].start()
        theirs.close()
        connections.append(ours)
    leader, *others = connections
    try:
        for iteration in range(config.num_iterations):
            if mode == "free":
                for connection in others:
                    connection.send(None)
            leader.send(None)
            led: Outcome = leader.recv()
            if mode == "lockstep":
                for connection in others:
                    connection.send((led.before, led.steps))
            outcomes = [connection.recv() for connection in others]
            tolerance = ACTION_TOLERANCES[config.root.precision]
            yield {f: difference(led, o, tolerance) for f, o in zip(frameworks[1:], outcomes, strict=True)}
            if (iteration + 1) % max(1, config.num_iterations // 10) == 0:
                say(f"iteration {iteration + 1} of {config.num_iterations}")
    except EOFError as error:
        raise RuntimeError("a framework's process ended; its own error stands above") from error
    finally:
        for process in processes:
            process.terminate()


def _work(connection: Connection, overrides: list[str], follows: bool) -> None:
    """The loop of one framework's process: an iteration for each message, alone or after the leader."""
    config = load_config(overrides)
    made = config.backend.make(config.task)
    if isinstance(made, GraphEnv):
        raise ConfigError("environments that are part of a program cannot be recorded: use another backend")
    env: VectorEnv
    if follows:
        made.close()
        env = replay = ReplayEnv(made)
    else:
        env = recorder = RecordingEnv(made)
    network = config.network.build(env.observation_space, env.action_space)
    problem = Problem(env, network, config.ppo, config.num_iterations, config.root.precision, config.root.device)
    runner: Runner[Any] = config.framework.runner(problem)
    state = runner.init(config.root.seed)
    while True:
        message = connection.recv()
        if follows:
            before, steps = message
            replay.load(steps)
            state, _, _ = runner.step(runner.restore(before, carried=True))
            connection.send(Outcome(replay.actions(), {}, runner.export(state), None))
        else:
            before = runner.export(state)
            state, _, _ = runner.step(state)
            recording = recorder.take()
            connection.send(Outcome(recording.actions, before, runner.export(state), recording.steps))


def difference(leader: Outcome, other: Outcome, action_tolerance: float) -> Difference:
    """How `other` differs from `leader` in one iteration."""
    discrete = leader.actions.dtype.kind in "iu"
    gaps = np.abs(leader.actions.astype(np.float64) - other.actions)
    differs = gaps > (0 if discrete else action_tolerance)
    if not discrete:
        differs = differs.any(-1)
    first = int(np.flatnonzero(differs.ravel())[0]) if differs.any() else None
    names = [name for name in leader.after if name.startswith("params.")]
    mine, theirs = (
        np.concatenate([o.after[name].ravel().astype(np.float64) for name in names]) for o in (leader, other)
    )
    return Difference(int(differs.sum()), first, float(np.linalg.norm(theirs - mine) / np.linalg.norm(mine)))


def _report(config: Config, frameworks: list[str], mode: str, rows: list[dict[str, Difference]]) -> int:
    steps = config.num_iterations * config.ppo.batch_size
    tolerance = TOLERANCES[config.root.precision]
    task = f"{config.task.id} on {config.backend.name}, {config.root.precision}"
    print(f"{task}, {steps:,} steps, {mode}, led by {frameworks[0]}")
    print(f"{'framework':<16}{'same actions for':>18}{'differing':>11}{'largest parameter distance':>28}")
    summary, same = {}, True
    for framework in frameworks[1:]:
        differences = [row[framework] for row in rows]
        differing = sum(d.actions for d in differences)
        parted = next(((k, d.first) for k, d in enumerate(differences) if d.first is not None), None)
        identical = steps if parted is None else parted[0] * config.ppo.batch_size + parted[1]
        largest = max(d.parameters for d in differences)
        same &= differing == 0 and (mode == "free" or largest <= tolerance)
        print(f"{framework:<16}{identical:>12,} steps{differing:>11,}{largest:>28.2e}")
        summary[framework] = {
            "identical_steps": identical,
            "differing_actions": differing,
            "largest_parameter_distance": largest,
            "parameter_distances": [d.parameters for d in differences],
        }
    folder = Path(config.root.outputs) / "equivalence" / f"{config.run_folder.parent.name}-{mode}"
    folder.mkdir(parents=True, exist_ok=True)
    about = {"schema_version": SCHEMA_VERSION, "mode": mode, "leader": frameworks[0], "steps": steps, "same": same}
    about |= {"tolerance": tolerance if mode == "lockstep" else None, "config": config.resolved}
    write_json(folder / "equivalence.json", about | {"frameworks": summary})
    _plot(folder / "equivalence.svg", config, mode, summary)
    print(f"the frameworks {'do' if same else 'do not do'} the same; {folder}")
    return 0 if same else 1


def _plot(path: Path, config: Config, mode: str, summary: dict[str, dict[str, Any]]) -> None:
    """Parameter distances over environment steps, on a logarithmic axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    styles = itertools.cycle([("#0072b2", "-"), ("#d55e00", "--"), ("#009e73", ":")])
    for framework, (colour, line) in zip(summary, styles, strict=False):
        distances = np.array(summary[framework]["parameter_distances"])
        steps = config.ppo.batch_size * np.arange(1, len(distances) + 1)
        axes.plot(steps, np.maximum(distances, 1e-18), color=colour, linestyle=line, label=framework)
    if mode == "lockstep":
        axes.axhline(TOLERANCES[config.root.precision], color="grey", linewidth=0.8, label="tolerance")
    axes.set(yscale="log", xlabel="environment steps", ylabel="relative distance of parameters")
    axes.set_title(f"{config.task.id}, {config.backend.name}, {config.root.precision}, {mode}")
    axes.legend(frameon=False)
    figure.savefig(path)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
