"""See `ppo_bench.commands.export.command`."""

from __future__ import annotations

import sys

from ppo_bench.commands.export.command import main
from ppo_bench.common.cli import exit_code

if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
