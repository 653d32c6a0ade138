"""`python -m ppo_bench.equivalence [overrides]`: do the frameworks do the same?

One framework leads a training. In every iteration each other one starts from the leader's state, sees the same
environment steps, and must choose the same actions and arrive at the same losses, gradient norms and parameters. This
is lockstep. (Training is chaotic: rounding is amplified without bound, so free runs diverge in the end.)

Lists choose what is compared, as in a sweep: framework=torch_eager,jax_xla device=cpu,cuda. The first leads.

against=PATH/ppo.py experiment=cleanrl/ppo: a script of CleanRL's, executed unchanged, against the frameworks.

Exit 0 if every action was the same and the rest within tolerance; else 1.
"""

from __future__ import annotations

import sys
from contextlib import chdir, closing
from typing import Any

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.commands.equivalence.cleanrl import command as cleanrl
from ppo_bench.commands.equivalence.config import load
from ppo_bench.commands.equivalence.differences import TOLERANCES, Difference, compare
from ppo_bench.commands.equivalence.processes import iterations, played
from ppo_bench.commands.equivalence.report import Comparison, report
from ppo_bench.commands.equivalence.rounding import Tie, count_tied_actions, ties
from ppo_bench.commands.programs import programs, require_same
from ppo_bench.common.cli import Parser, exit_code, parse_overrides
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import GraphEnv
from ppo_bench.envs.make import make_env


def main(arguments: list[str]) -> int:
    """Run the comparison, print a table and write `equivalence.json`; returns 1 if frameworks differ."""
    parser = Parser("python -m ppo_bench.equivalence", description=__doc__)
    parser.add_overrides("as for a sweep")
    overrides = parse_overrides(parser.parse_intermixed_args(arguments))
    if any(override.startswith("against=") for override in overrides):
        return cleanrl.main(overrides)
    configs = programs(load, overrides, _require)
    config = next(iter(configs.values()))
    if len(configs) < 2:
        raise ConfigError(
            f"only {', '.join(configs)}: name two programs, as in framework=torch_eager,jax_xla or tuning=on,off"
        )
    require_same(configs, _experience)
    with chdir("."):  # an environment may change the current folder
        with closing(make_env(config.backend, config.task)) as env:  # raises with one line if it is not available
            if isinstance(env, GraphEnv) and env.same_step:
                raise ConfigError(
                    f"backend={config.backend.name}: its environments cannot be recorded; use another, such as envpool"
                )
        comparison = _compare(configs)
    return report(config, comparison)


def _require(config: Config) -> None:
    """Raise `ConfigError` as for a run, except that any framework may use a `GraphEnv`, stepped on the host here."""
    if config.backend.in_graph:
        config.framework.require()
        config.require_backend()
    else:
        config.require()
    if config.num_groups > 1:
        raise ConfigError(f"backend.num_groups={config.num_groups}: recorded environments step together; use 1")


def _experience(config: Config) -> dict[str, Any]:
    """Values that programs must share, since one's rollouts are the others' too."""
    ppo = config.ppo
    return {
        "env": (config.task.name, config.hashed["env"]),
        "backend": config.backend.name,
        "seed": config.root.seed,
        "ppo.num_envs": ppo.num_envs,
        "ppo.num_steps": ppo.num_steps,
    }


def _compare(configs: dict[str, Config]) -> Comparison:
    """Differences of every framework from the first, by iteration, and the actions that tie."""
    leader, *others = configs
    config = configs[leader]
    precision = max((each.root.precision for each in configs.values()), key=lambda name: TOLERANCES[name].parameters)
    tolerance = TOLERANCES[precision]
    compared = [metric.name for metric in metrics_of(config.algorithm) if metric.compared]
    differences: dict[str, list[Difference]] = {name: [] for name in others}
    found_ties: dict[str, list[Tie]] = {name: [] for name in others}
    with closing(iterations(configs)) as outcomes_of_all:
        for iteration, (led, outcomes) in enumerate(outcomes_of_all, 1):
            for name, outcome in outcomes.items():
                difference = compare(led, outcome, tolerance.actions, compared)
                if difference.actions:
                    found = ties(*played(config, led), led, outcome, iteration, tolerance.ties)
                    found_ties[name] += found
                    untied = difference.actions - count_tied_actions(led, outcome, found)
                    difference = difference._replace(actions=untied, tied=bool(found))
                differences[name].append(difference)
            if iteration % max(1, config.num_iterations // 10) == 0:
                print_status(f"iteration {iteration} of {config.num_iterations}")
    return Comparison(leader, precision, differences, found_ties)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
