"""The path of the configuration folder, the frameworks in it, and paths in messages."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent

CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"
"""Folder of the YAML files: inside the package in a wheel, next to it in a clone."""
FRAMEWORKS = sorted((path.stem for path in (CONF / "framework").glob("*.yaml")), reverse=True)
"""Choices of the group `framework`, `torch_eager` first."""


def with_relative_paths(text: str) -> str:
    """`text` whose paths below the current folder are relative to it."""
    try:
        return re.sub(rf"(?<![\w./-]){re.escape(os.getcwd())}/", "", text)
    except OSError:  # the current folder has been removed
        return text
