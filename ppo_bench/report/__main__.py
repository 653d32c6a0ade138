"""See ppo_bench/report/command.py."""

import sys

from ppo_bench.cli import exit_code
from ppo_bench.report.command import main

if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
