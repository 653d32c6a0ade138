"""`python -m ppo_bench [overrides]`: train one run, or with -m a sweep of them."""

from __future__ import annotations

import sys
import time

_STARTED_AT = time.perf_counter()


def main(arguments: list[str]) -> int:
    """Compose, validate, train; the exit code."""
    if {"-h", "--help"} & set(arguments):
        from ppo_bench.help import help_text

        print(help_text())
        return 0
    from ppo_bench.config import load_config

    overrides = [argument for argument in arguments if not argument.startswith("-")]
    flags = [argument for argument in arguments if argument.startswith("-")]
    if flags in (["-m"], ["--multirun"]):
        from ppo_bench.sweep import sweep

        return sweep(overrides)
    if flags:
        from ppo_bench.sweep import hydra_command

        return hydra_command(arguments)
    config = load_config(overrides)
    config.framework.require()
    from ppo_bench.train import train

    print(train(config, _STARTED_AT))
    return 0


if __name__ == "__main__":
    from ppo_bench.cli import exit_code

    sys.exit(exit_code(main, sys.argv[1:]))
