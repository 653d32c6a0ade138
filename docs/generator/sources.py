"""Pages that show source files, and the lines on which names are defined."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "bash", ".toml": "toml", ".csv": "text", ".cff": "yaml"}


def source_file(name: str) -> str | None:
    """The path from the root of a file whose name is relative to the root or to ppo_bench/; None if there is none."""
    for path in (name, f"ppo_bench/{name}"):
        if "/" in path and not path.startswith("docs/") and (ROOT / path).is_file():
            return path
    return None


def source_page(path: str) -> str:
    """A Markdown page that shows the file `path` with line numbers."""
    text = (ROOT / path).read_text(encoding="utf-8")
    language = LANGUAGES.get(Path(path).suffix, "text")
    fence = "`" * (max((len(run) for run in re.findall("`{3,}", text)), default=2) + 1)
    head = f"---\nsearch:\n  exclude: true\nhide: [toc]\ntitle: {path}\n---\n\n# `{path}`\n\n"
    return f'{head}{fence}{language} linenums="1"\n{text.rstrip()}\n{fence}\n'


@cache
def _lines(path: str) -> dict[str, int]:
    text = (ROOT / path).read_text(encoding="utf-8")
    if not path.endswith(".py"):
        keys = (re.match(r"(\w+):", line) for line in text.splitlines())
        return {key[1]: number for number, key in enumerate(keys, 1) if key}
    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(text)):  # breadth first: outer definitions precede nested ones
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.setdefault(node.name, node.lineno)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    found[f"{node.name}.{inner.name}"] = inner.lineno
    return found


def line_of(path: str, name: str) -> int | None:
    """The line that defines a function, class, `Class.method` or YAML key, or 12 for `L12`; None if there is none."""
    if re.fullmatch(r"L\d+", name):
        return int(name[1:])
    return _lines(path).get(name)
