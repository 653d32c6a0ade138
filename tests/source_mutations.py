"""Small faults of the source, which tests must catch, and copies of this checkout to put them into."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

ROOT = Path(__file__).parent.parent


class Mutation(NamedTuple):
    """A fault: `new` in place of the only `old` in the package's source."""

    name: str
    fault: str
    """What is wrong, in words."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Files of tests that catch it, such as `losses` for tests/test_losses.py."""

    def changed_file(self, package: Path) -> tuple[Path, str]:
        """The file of `package` that has `old`, and its text with the fault. Fails unless `old` occurs once."""
        texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
        places = {path: count for path, text in texts.items() if (count := text.count(self.old))}
        assert list(places.values()) == [1], f"{self.name} must occur once: {places}. Bring it along:\n{self.old}"
        (path,) = places
        return path, texts[path].replace(self.old, self.new)


def load_mutations() -> dict[str, Mutation]:
    """All mutations by name."""
    entries: Any = OmegaConf.to_container(OmegaConf.load(ROOT / "tests" / "source_mutations.yaml"))
    return {
        name: Mutation(name, each["fault"], each["old"], each["new"], tuple(each["tests"]))
        for name, each in entries.items()
    }


def copy_checkout(folder: Path) -> None:
    """Copy this checkout to `folder` as a repository, with changes and files that are not committed yet."""
    subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", ROOT, folder], check=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():  # not deleted meanwhile
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    subprocess.run(["git", "reset", "--quiet"], cwd=folder, check=True)
