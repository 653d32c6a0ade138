#!/usr/bin/env python3
"""State of the runs submitted by launch/slurm.py: python launch/status.py DIR; see docs/slurm.md."""

import sys

from ppo_bench.common.cli import exit_code
from ppo_bench.sweeps.slurm.status import main

if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
