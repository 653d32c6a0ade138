"""`python -m ppo_bench [overrides]`: train one run, or a sweep of runs with -m."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ppo_bench.common.cli import Parser, exit_code, overrides_of
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.launched import launched

if TYPE_CHECKING:
    from ppo_bench.configuration.config import Config

_STARTED_AT = time.perf_counter()


def main(arguments: list[str]) -> int:
    """Compose and validate the configuration, train, and return the exit code."""
    parser = Parser("python -m ppo_bench", add_help=False, allow_abbrev=False)
    parser.add_overrides()
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--version", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--cfg", choices=["job", "hydra", "all"])
    parser.add_argument("--package")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument(
        "--info", nargs="?", const="all", choices=["all", "config", "defaults", "defaults-tree", "plugins"]
    )
    parser.add_argument("--config-name")
    parser.add_argument("--hydra-help", action="store_true")
    options = parser.parse_intermixed_args(arguments)
    overrides = overrides_of(options)
    if options.config_name not in (None, "config"):
        raise ConfigError(f"--config-name {options.config_name}: every run begins with config; use experiment=...")
    shows = options.cfg or options.info
    if (options.resolve or options.package) and not shows:
        raise ConfigError(f"{'--resolve' if options.resolve else '--package'} is for --cfg: --cfg job --resolve")
    if options.multirun and shows:
        raise ConfigError(f"{'--cfg' if options.cfg else '--info'} shows one run: leave out -m")
    if options.help or options.hydra_help:
        from ppo_bench.commands.help import help_text

        print(help_text())
        return 0
    if options.version:
        from importlib.metadata import version

        print(f"ppo_bench {version('ppo-bench')}")
        return 0
    from ppo_bench.configuration.load import load_config

    if shows:
        from ppo_bench.configuration.compose import readable
        from ppo_bench.sweeps.expand import expand
        from ppo_bench.sweeps.sweep import show_config

        job, *more = expand(overrides)
        if more:
            raise ConfigError(f"{'--cfg' if options.cfg else '--info'} shows one run: give each key one value")
        options_only = [word for word in arguments if word not in overrides]
        return show_config([*options_only, *readable(overrides), *load_config(job).chosen])
    if options.multirun:
        from ppo_bench.sweeps.sweep import sweep

        if launched():
            raise ConfigError("-m starts the processes of each run itself: leave out torchrun")
        return sweep(overrides)
    from ppo_bench.sweeps.expand import require_one_run

    require_one_run(overrides)
    config = load_config(overrides)
    config.require()
    if launched() and _is_another_rank(config):
        return 0
    with _signals_as_ctrl_c():
        from ppo_bench.runs.train import train

        for folder in train(config, _STARTED_AT):
            print(folder)
    return 0


def _is_another_rank(config: Config) -> bool:
    """Whether this process was one of several that a launcher started, other than rank 0, and is done."""
    from ppo_bench.common.files import are_complete
    from ppo_bench.runs.group import dismiss_ranks, require_launched, serve_rank

    require_launched(config)
    told = launched()
    assert told is not None
    if told.rank:
        serve_rank(config, told.rank)
    elif told.world_size > 1 and are_complete(config.folders):
        dismiss_ranks()
    return told.rank > 0


@contextmanager
def _signals_as_ctrl_c() -> Iterator[None]:
    """A context in which SIGTERM, SIGUSR1 and SIGUSR2 act as Ctrl-C does, until the training handles them itself."""
    numbers = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
    before = {number: signal.signal(number, signal.default_int_handler) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
