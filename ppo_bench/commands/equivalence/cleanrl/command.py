"""`python -m ppo_bench.equivalence against=SCRIPT.py [overrides]`: does a script of CleanRL's do the same?

The script is executed unchanged, in a process of its own, with its environments and its wrappers. It is given the
initial weights and the random numbers of the training that the overrides describe, such as experiment=cleanrl/ppo, and
its arguments follow from them. Both train from there on without hearing of each other. After each iteration their
actions, parameters, Adam's moments and losses are compared. The output names every patch around the script.
conf/against.yaml explains the keys.

Exit 0 if every action was the same and the rest is within the tolerance; else 1.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.equivalence.cleanrl.arguments import arguments_of
from ppo_bench.commands.equivalence.cleanrl.config import initial_state, load, schema, script_path
from ppo_bench.commands.equivalence.cleanrl.patches import INTERFACES, NEUTRALISED, SUPPLIED
from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS, require_same_names
from ppo_bench.commands.equivalence.differences import TOLERANCES, IterationOutcome, compare
from ppo_bench.commands.equivalence.processes import FrameworkProcess
from ppo_bench.commands.equivalence.requirements import configs_by_framework, require_no_run
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError, RunError, reason
from ppo_bench.common.files import SCHEMA_VERSION, make_folder, write_json
from ppo_bench.common.progress import print_status
from ppo_bench.common.values import digest
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.arrays import Arrays, Tree, select_prefix
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
    config = load(overrides)
    root, script = schema(config), script_path(config)
    require_no_run(config, overrides)
    configs = configs_by_framework(load, overrides, root.frameworks)
    training_spec, initial = initial_state(config)
    require_same_names(script.stem, initial)
    with tempfile.TemporaryDirectory() as folder:
        theirs = _run(config, Path(folder), overrides)
    rows = [row for name, each in configs.items() for row in _compare(name, each, theirs, training_spec.action_bounds)]
    return _report(config, rows, set().union(*(iteration.patches for iteration in theirs)))


class ScriptIteration(NamedTuple):
    """An iteration of the script, of all its processes."""

    outcome: IterationOutcome
    counts: np.ndarray
    """Flags of the steps that count, `[T, N]` bool."""
    patches: set[str]
    """Names of the patches that have had an occasion so far."""


def _run(config: Config, folder: Path, overrides: list[str]) -> list[ScriptIteration]:
    """Execute the script, whose processes write to `folder`. Raises `RunError` with its last line if it fails."""
    root, script = schema(config), script_path(config)
    ranks = config.ppo.shards if SCRIPTS[script.stem].is_distributed else 1
    print_status(f"python {script.name} {' '.join([*arguments_of(script, config), *root.arguments])}")
    torchrun = ["torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "-m"] if ranks > 1 else []
    command = [sys.executable, "-m", *torchrun, "ppo_bench.commands.equivalence.cleanrl.process"]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [*command, str(folder), *overrides], env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    if ran.returncode:
        lines = ran.stderr.splitlines()
        of_ranks = [line for line in lines if line.startswith("[rank")]  # before what torchrun says of them
        raise RunError(f"{script.name}: {reason(ran.returncode, of_ranks or lines)}")
    numbers = range(1, root.iterations + 1)
    return [_iteration([folder / str(rank) / f"{number}.npz" for rank in range(ranks)], config) for number in numbers]


def _iteration(records: list[Path], config: Config) -> ScriptIteration:
    """An iteration from the records of all processes."""
    arrays = [_arrays(record) for record in records]
    actions, value_mask = (np.concatenate([each[name] for each in arrays], 1) for name in ("actions", "value_mask"))
    metrics = {
        name: float(np.mean([each[f"metrics.{name}"] for each in arrays]))
        for name in select_prefix("metrics", arrays[0])
    }
    counts = value_mask if config.ppo.mask_resets else np.ones_like(value_mask)
    patches = {str(name) for each in arrays for name in each["patches"]}
    return ScriptIteration(IterationOutcome(actions, {}, arrays[0], metrics, None), counts, patches)


def _arrays(path: Path) -> Arrays:
    with np.load(path) as archive:
        return dict(archive)


def _compare(name: str, config: Config, theirs: list[ScriptIteration], bounds: ActionBounds | None) -> Iterator[Row]:
    """The rows of one framework, which trains by itself."""
    with FrameworkProcess(config, follows=False) as framework:
        for number, (script, counts, _) in enumerate(theirs, 1):
            framework.start(None)
            ours = framework.outcome()
            if script.actions.shape[:2] != ours.actions.shape[:2]:
                shapes = f"{list(script.actions.shape[:2])}, and here {list(ours.actions.shape[:2])}"
                raise ConfigError(f"arguments: a rollout of the script is {shapes}")
            actions = bounds.to_env_actions(np, script.actions) if bounds else script.actions
            counted = counts.reshape(*counts.shape, *[1] * (actions.ndim - 2))
            actions = np.where(counted, actions.astype(ours.actions.dtype), ours.actions)
            losses = [loss for loss in script.metrics if loss != "gradient_norm"]
            other = script._replace(actions=actions, metrics={**ours.metrics, **script.metrics})
            found = compare(ours, other, TOLERANCES[config.root.precision].actions, losses)
            mean, variance = (
                _distance(*(_vector(select_prefix(f"adam.{moment}", each.after)) for each in (ours, other)))
                for moment in ("mean", "variance")
            )
            measured = (found.losses, found.gradient_norm) if losses else (None, None)
            yield Row(name, number, found.actions, found.movement, mean, variance, *measured)


def _vector(arrays: Tree) -> np.ndarray:
    """`arrays` as one vector, in the order of their names."""
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def _distance(mine: np.ndarray, theirs: np.ndarray) -> float:
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(mine))


def _report(config: Config, rows: list[Row], used: set[str]) -> int:
    """Print the table and the patches; write the JSON file, whose path is the last line. Returns the exit code."""
    root, script = schema(config), script_path(config)
    lines = [[*Row._fields], *([*map(_text, row)] for row in rows)]
    print(aligned(lines, right=range(1, len(Row._fields))))
    lists = {"supplied": SUPPLIED, "interfaces": INTERFACES, "neutralised": NEUTRALISED}
    applied = {kind: [name for name in names if name in used - set(root.leave_out)] for kind, names in lists.items()}
    for kind, names in applied.items():
        print(f"{kind}:")
        print("\n".join(f"  {name}: {lists[kind][name]}" for name in names))
    left = [name for name in root.leave_out if name in used]
    print(f"left in place: {', '.join(left) or 'nothing'}")
    if idle := [name for name in root.leave_out if name not in used]:
        print(f"without an occasion here: {', '.join(idle)}")
    compares_all = root.precision == "float64"
    tolerance = EXACT if compares_all else TOLERANCES[root.precision].movement
    compared = ("movement", "adam_mean", "adam_variance", "losses", "gradient_norm") if compares_all else ("movement",)
    distances = [getattr(row, name) for row in rows for name in compared]
    same = not any(row.actions for row in rows) and all(each is None or each <= tolerance for each in distances)
    what = "all else is" if compares_all else "parameters are"
    verdict = f"takes the same actions, and {what} within" if same else "differs: actions, or more than"
    print(f"{script.name} {verdict} {tolerance:g} ({root.precision})")
    about = {"schema_version": SCHEMA_VERSION, "script": script.name, "overrides": list(config.overrides)}
    about |= {"left_in_place": left, "same": same, **applied, "rows": [row._asdict() for row in rows]}
    folder = Path(root.outputs) / "equivalence"
    make_folder(folder)
    name = digest([word for word in config.overrides if not word.startswith("outputs=")])
    path = folder / f"against-{script.stem}-{root.precision}-{name}.json"
    write_json(path, about)
    print(path)
    return 0 if same else 1


def _text(value: Any) -> str:
    return "-" if value is None else f"{value:.1e}" if isinstance(value, float) else str(value)
