#!/usr/bin/env python3
"""Submit a sweep to SLURM and return; see python launch/slurm.py --help and docs/slurm.md."""

import sys

from ppo_bench.common.cli import add_cwd_to_path, exit_code
from ppo_bench.sweeps.slurm.submit import main

if __name__ == "__main__":
    add_cwd_to_path()  # as the jobs do, so that runs have the same folders
    sys.exit(exit_code(main, sys.argv[1:]))
