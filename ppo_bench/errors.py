"""The exceptions whose message is for the user: a single line that says what to change or what was kept."""

from __future__ import annotations

import importlib.util


class ConfigError(ValueError):
    """What was asked for cannot be done; nothing has been started. Ends the program with exit code 2."""


class Failed(Exception):
    """The run cannot go on; what it had saved is kept. Ends the program with exit code 1."""


class Interrupted(Exception):
    """The run was asked to stop, and did, between two iterations. Ends the program with exit code 130."""


def require(module: str, extra: str, purpose: str) -> None:
    """Raise `ConfigError` with the pip command if `module`, which `purpose` needs, is not installed."""
    try:
        found = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package that it is part of
        found = False
    if not found:
        raise ConfigError(f"{purpose} needs {module}, which is not installed: pip install 'ppo-bench[{extra}]'")
