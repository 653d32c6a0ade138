"""`python -m ppo_bench [overrides]`: train one run, or with -m a sweep of them."""

from __future__ import annotations

import argparse
import sys
import time
from typing import NoReturn

from ppo_bench.cli import exit_code
from ppo_bench.errors import ConfigError

_STARTED_AT = time.perf_counter()


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message}; python -m ppo_bench --help lists what there is")


def main(arguments: list[str]) -> int:
    """Compose, validate, train; the exit code."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("-m", "--multirun", action="store_true")
    parser.add_argument("--cfg", choices=["job", "hydra", "all"])
    parser.add_argument("--package")
    parser.add_argument("--resolve", action="store_true")
    parser.add_argument(
        "--info", nargs="?", const="all", choices=["all", "config", "defaults", "defaults-tree", "plugins"]
    )
    options = parser.parse_intermixed_args(arguments)
    if options.help:
        from ppo_bench.help import help_text

        print(help_text())
        return 0
    if options.multirun:
        from ppo_bench.sweep import sweep

        return sweep(options.overrides)
    from ppo_bench.config import load_config

    config = load_config(options.overrides)
    if options.cfg or options.info:
        from ppo_bench.sweep import show_config

        return show_config(arguments)
    config.framework.require()
    from ppo_bench.train import train

    print(train(config, _STARTED_AT))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
