"""`python -m ppo_bench.equivalence`; see ppo_bench/equivalence/command.py."""

from __future__ import annotations

import sys

from ppo_bench.cli import exit_code
from ppo_bench.equivalence.command import main

if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
