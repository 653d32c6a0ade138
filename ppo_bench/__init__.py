"""One PPO and several ways of executing it.

`python -m ppo_bench.<command>` is ppo_bench/commands/<command>: that folder is on the package's search path.
"""

from pathlib import Path

__path__.append(str(Path(__file__).parent / "commands"))
