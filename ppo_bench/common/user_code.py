"""The user's own code: modules that belong to no installed package, and digests of their files."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

PACKAGES_IN = {"site-packages", "dist-packages"}
"""Names of folders of installed packages."""


def loaded_user_code() -> dict[str, str]:
    """Digests of the loaded modules that are the user's own, by name."""
    files = {name: getattr(module, "__file__", None) or "" for name, module in list(sys.modules.items())}
    # Most modules are installed, and a Path for each of them takes longer than to tell them apart by their text.
    others = {name: Path(file) for name, file in files.items() if not any(f"/{part}/" in file for part in PACKAGES_IN)}
    return {name: _digest([file]) for name, file in sorted(_select_user_files(others).items())}


def configured_objects(config: Mapping[str, Any], env_id: str) -> list[str]:
    """Dotted names of the classes, functions and modules that a configuration names.

    It names classes as `_target_`, functions as `path` of `hydra.utils.get_method` and its relatives, modules of
    `network=own`, and the module of an environment as `module:id`.
    """
    network = config.get("network") or {}
    modules = [name for name in (network.get("torch"), network.get("flax")) if isinstance(name, str)]
    return [*_targets(config), *modules, *([env_id.partition(":")[0]] if ":" in env_id else [])]


def configured_user_code(names: Iterable[str]) -> str | None:
    """Digest of the user's own modules among those of `configured_objects`; None if there are none.

    Modules that these import from the same folder count as well. Nothing is executed.
    """
    files = _select_user_files({name: file for name in names for name, file in _find_imported_files(name)})
    return _digest(files[name] for name in sorted(files)) if files else None


def _targets(node: Any) -> Iterator[str]:
    """The values of `_target_` in a tree of mappings and lists, and those of `path` next to Hydra's own targets."""
    if isinstance(node, Mapping):
        target, path = node.get("_target_"), node.get("path")
        if isinstance(target, str):
            yield target
            if target.startswith("hydra.utils.") and isinstance(path, str):
                yield path
        node = list(node.values())
    if isinstance(node, list | tuple):
        for child in node:
            yield from _targets(child)


def _find_imported_files(name: str) -> Iterator[tuple[str, Path]]:
    """Name and file of the module in the dotted `name`, and of what it imports, directly or not, from its folder."""
    module, file = _module_of(name)
    if file is None or not _select_user_files({module: file}):
        return
    folder = file.parents[module.count(".") + (file.name == "__init__.py")]
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        module = waiting.pop()
        path = folder.joinpath(*module.split("."))
        file = next((each for each in (path / "__init__.py", path.with_suffix(".py")) if each.is_file()), None)
        if file is not None and module not in found:
            found[module] = file
            waiting += _imports(module, file)
    yield from found.items()


def _module_of(name: str) -> tuple[str, Path | None]:
    """The longest part of the dotted `name` that is a module, and its file; None if there is none of Python."""
    module, *further = name.split(".")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return name, None
    for part in further:
        if spec is None or spec.submodule_search_locations is None:
            break
        below = PathFinder.find_spec(f"{module}.{part}", spec.submodule_search_locations)
        if below is None:
            break
        module, spec = f"{module}.{part}", below
    origin = spec.origin if spec else None
    return module, Path(origin) if origin and origin.endswith(".py") else None


def _imports(module: str, file: Path) -> Iterator[str]:
    """Names that may be modules imported by a file, with the packages that hold them. None if it is no Python."""
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    try:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
    except (SyntaxError, ValueError):
        return
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*filter(None, above), *([node.module] if node.module else [])])
            names = [base, *(f"{base}.{name}" if base else name for name in names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:length]) for length in range(1, len(parts) + 1))


def _select_user_files(files: Mapping[str, Path]) -> dict[str, Path]:
    """Those of the `files` of modules that belong to no installed package, nor to this one."""
    here = Path(__file__).parent.parent
    candidates = {name: file.absolute() for name, file in files.items() if file.is_file()}
    candidates = {n: file for n, file in candidates.items() if not PACKAGES_IN & set(file.parts)}
    candidates = {n: file for n, file in candidates.items() if not file.is_relative_to(here)}
    if not candidates:
        return {}
    installed = {*map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib", "scripts")), str(here)}
    elsewhere = [folder for folder in sys.path if folder and Path(folder).resolve() != Path.cwd()]
    installed |= {folder for folder in elsewhere if any(Path(folder).glob("*.dist-info"))}  # pip install --target
    folders = {path for folder in installed for path in (Path(folder).absolute(), Path(folder).resolve())}

    def is_installed(file: Path) -> bool:
        return any(file.is_relative_to(folder) for folder in folders)

    return {n: file for n, file in candidates.items() if not (is_installed(file) or is_installed(file.resolve()))}


def _digest(files: Iterable[Path]) -> str:
    digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    return digests[0][:16] if len(digests) == 1 else hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]
