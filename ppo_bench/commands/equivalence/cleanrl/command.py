"""`python -m ppo_bench.equivalence against=SCRIPT.py [overrides]`: does a script of CleanRL's do the same?

The script is executed unchanged, in a process of its own, with its environments and its wrappers. It is given the
initial weights and the random numbers of the training that the overrides describe, such as experiment=cleanrl/ppo, and
its arguments follow from them. Both train from there on without hearing of each other. After each iteration their
actions, parameters, Adam's moments and losses are compared. docs/cleanrl-lockstep.md lists the patches
around a script, and conf/against.yaml explains the keys.

Exit 0 if every action was the same and the rest is within the tolerance; else 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.equivalence.cleanrl.config import arguments_of, initial_state, load, schema, script_path
from ppo_bench.commands.equivalence.cleanrl.process import run_script
from ppo_bench.commands.equivalence.cleanrl.script import Record
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.commands.equivalence.differences import TOLERANCES, IterationOutcome, compare, distance
from ppo_bench.commands.equivalence.processes import FrameworkProcess
from ppo_bench.commands.programs import programs, require_same
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import SCHEMA_VERSION, make_folder, write_json
from ppo_bench.common.progress import print_status
from ppo_bench.common.values import digest
from ppo_bench.common.workers import RankWorkers
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.distributions import ActionBounds

EXACT = 1e-10
"""Tolerance of all that is compared in float64. In coarser precisions only actions and parameters are within one, that
of a lockstep: rounding grows from iteration to iteration."""


class Row(NamedTuple):
    """The comparison of one iteration."""

    framework: str
    iteration: int
    actions: int
    """Number of actions that differ, of those that count."""
    movement: float
    """Norm of the difference of all parameters, relative to that of their change in the iteration."""
    adam_mean: float
    """Norm of the difference of Adam's first moments, relative to their norm."""
    adam_variance: float
    losses: float | None
    """The largest difference of a loss, relative where the loss is above 1; None if the script keeps none."""
    gradient_norm: float | None


def main(overrides: list[str]) -> int:
    """Run both sides, print a table, and write a JSON file; returns 1 if they differ."""
    configs = programs(load, overrides)
    require_same(configs, _training)
    config = next(iter(configs.values()))
    bounds = initial_state(config)[0].action_bounds
    theirs = _run(config)
    rows = [row for name, each in configs.items() for row in _compare(name, each, theirs, bounds)]
    return _report(config, rows)


def _training(config: Config) -> dict[str, Any]:
    """Values that programs must share, since the script runs once: all but how a training is executed."""
    execution = ("framework", "backend", "tuning", "device")
    values = {key: value for key, value in config.hashed.items() if key not in execution}
    return values | {"env": (config.task.name, values["env"]), "seed": config.root.seed}


def _run(config: Config) -> list[Record]:
    """The iterations of the script, of all its processes. Raises `RunError`."""
    root, script = schema(config), script_path(config)
    print_status(f"python {script.name} {' '.join([*arguments_of(script, config), *root.arguments])}")
    ranks = config.ppo.shards if SCRIPTS[script.stem].is_distributed else 1
    with RankWorkers(script.name, ranks, run_script, config) as workers:
        return [_joined(records) for records in zip(*workers.receive(), strict=True)]


def _joined(records: Sequence[Record]) -> Record:
    """An iteration from the records of all processes."""
    actions, value_mask, _, metrics = zip(*records, strict=True)
    means = {name: float(np.mean([each[name] for each in metrics])) for name in metrics[0]}
    return Record(np.concatenate(actions, 1), np.concatenate(value_mask, 1), records[0].arrays, means)


def _compare(name: str, config: Config, theirs: list[Record], bounds: ActionBounds | None) -> Iterator[Row]:
    """The rows of one framework, which trains by itself."""
    with FrameworkProcess(config, follows=False) as framework:
        for number, script in enumerate(theirs, 1):
            framework.send(None)
            ours = framework.outcome()
            if script.actions.shape[:2] != ours.actions.shape[:2]:
                shapes = f"{list(script.actions.shape[:2])}, and here {list(ours.actions.shape[:2])}"
                raise ConfigError(f"arguments: a rollout of the script is {shapes}")
            actions = bounds.to_env_actions(np, script.actions) if bounds else script.actions
            if config.ppo.mask_resets:  # actions of resets do not count
                counted = script.value_mask.reshape(*script.value_mask.shape, *[1] * (actions.ndim - 2))
                actions = np.where(counted, actions, ours.actions)
            losses = [loss for loss in script.metrics if loss != "gradient_norm"]
            actions = actions.astype(ours.actions.dtype)
            other = IterationOutcome(actions, {}, script.arrays, {**ours.metrics, **script.metrics}, None)
            found = compare(ours, other, TOLERANCES[config.root.precision].actions, losses)
            moments = [distance(ours.after, script.arrays, f"adam.{moment}.") for moment in ("mean", "variance")]
            measured = (found.losses, found.gradient_norm) if losses else (None, None)
            yield Row(name, number, found.actions, found.movement, *moments, *measured)


def _report(config: Config, rows: list[Row]) -> int:
    """Print the table, write the JSON file and print its path. Returns the exit code."""
    root, script = schema(config), script_path(config)
    lines = [[*Row._fields], *([*map(_text, row)] for row in rows)]
    print(aligned(lines, right=range(1, len(Row._fields))))
    compares_all = root.precision == "float64"
    tolerance = EXACT if compares_all else TOLERANCES[root.precision].movement
    compared = ("movement", "adam_mean", "adam_variance", "losses", "gradient_norm") if compares_all else ("movement",)
    distances = [getattr(row, name) for row in rows for name in compared]
    same = not any(row.actions for row in rows) and all(each is None or each <= tolerance for each in distances)
    what = "all else is" if compares_all else "parameters are"
    verdict = f"takes the same actions, and {what} within" if same else "differs: actions, or more than"
    print(f"{script.name} {verdict} {tolerance:g} ({root.precision})")
    about = {"schema_version": SCHEMA_VERSION, "script": script.name, "overrides": list(config.overrides)}
    about |= {"same": same, "rows": [row._asdict() for row in rows]}
    folder = Path(root.outputs) / "equivalence"
    make_folder(folder)
    sides = dict.fromkeys(row.framework for row in rows)
    name = digest([*(word for word in config.overrides if not word.startswith("outputs=")), *sides])
    path = folder / f"against-{script.stem}-{root.precision}-{name}.json"
    write_json(path, about)
    print(path)
    return 0 if same else 1


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.1e}" if isinstance(value, float) else str(value)
