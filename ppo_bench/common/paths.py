"""The path of the configuration folder."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent.parent

CONF = _PACKAGE / "conf" if (_PACKAGE / "conf").is_dir() else _PACKAGE.parent / "conf"
"""Folder of the YAML files: inside the package in a wheel, next to it in a clone."""
