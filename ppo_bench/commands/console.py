"""`ppo-bench COMMAND ...`: every command by one name; `ppo-bench env=...` trains.

`eval "$(ppo-bench -sc install=bash)"` completes groups and their choices in bash.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version

from ppo_bench.common.cli import add_cwd_to_path, exit_code
from ppo_bench.common.errors import ConfigError, nearest

TRAIN = "ppo_bench.__main__"
COMMANDS = {
    "train": (TRAIN, "one run, as python -m ppo_bench"),
    "sweep": (TRAIN, "runs of several values of a key, as python -m ppo_bench -m"),
    "evaluate": ("ppo_bench.commands.evaluate", "whole episodes by a run's policy"),
    "report": ("ppo_bench.commands.report.__main__", "which framework is faster, and do they learn the same?"),
    "bench": ("ppo_bench.commands.bench.__main__", "how fast is each framework, and where does the time go?"),
    "equivalence": ("ppo_bench.commands.equivalence.__main__", "do the frameworks do the same, action for action?"),
    "check": ("ppo_bench.commands.check", "does an environment keep the contract?"),
    "watch": ("ppo_bench.commands.watch", "state and progress of the runs under a folder"),
    "query": ("ppo_bench.commands.query", "SQL over runs, metrics, episodes"),
    "doctor": ("ppo_bench.commands.doctor", "what can this machine run, and how to fix the rest?"),
    "export": ("ppo_bench.commands.export.__main__", "a run as a folder for the Hugging Face Hub"),
}
"""Name of a command: the module with its `main`, and its line of help."""


def main(arguments: list[str]) -> int:
    """Run the command that the first argument names. Returns its exit code."""
    name, *rest = arguments or ["--help"]
    if name in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        print("Usage: ppo-bench [COMMAND] [key=value ...]; ppo-bench COMMAND --help. Without a command, it trains.\n")
        print("\n".join(f"  {command:<{width}}  {about}" for command, (_, about) in COMMANDS.items()))
        return 0
    if name == "--version":
        print(f"ppo_bench {version('ppo-bench')}")
        return 0
    if name in ("-sc", "--shell-completion"):
        from ppo_bench.__main__ import application

        typed = os.environ.get("COMP_LINE", "").split(" ")
        os.environ["COMP_LINE"] = " ".join(word for word in typed if word not in COMMANDS)  # Hydra knows none
        return application(arguments, program="ppo-bench")
    if name not in COMMANDS:
        if "=" in name or name.startswith(("-", "~")):
            return _of("train", arguments)
        close = nearest(name, COMMANDS)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(COMMANDS)}"
        raise ConfigError(f"there is no command {name!r}; {hint}")
    return _of(name, rest)


def _of(name: str, arguments: list[str]) -> int:
    command = importlib.import_module(COMMANDS[name][0])
    code: int = command.main(["-m", *arguments] if name == "sweep" else arguments)
    return code


def console() -> None:
    """Run `ppo-bench` with the command line's words. It finds modules in the current folder, as `python -m` does."""
    add_cwd_to_path()
    sys.exit(exit_code(main, sys.argv[1:]))
