"""Entry point of `python -m ppo_bench.report`; see ppo_bench/commands/report/command.py."""

import sys

from ppo_bench.commands.report.command import main
from ppo_bench.common.cli import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
