"""Small faults of the source, one at a time: whether `make test` catches each, the test that does, and the seconds.

    python -m tests.source_mutations [NAME...] [--jobs 2]      faults of tests/source_mutations.yaml, all by default
    python -m tests.source_mutations --unchanged               no fault at all, which no test may catch

Each fault is put into a copy of this checkout. The tests that the fault names run first; where they pass, all tests of
`make test` do. Exits 1 if a fault is not caught.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

ROOT = Path(__file__).parent.parent
FAST = ("-m", "not slow")
OF_THE_TEXT = ("--ignore=tests/test_source_mutations.py", "--ignore=tests/test_two_trees.py")
"""Tests that look for the text of a fault, and so fail with any."""
ALL_TESTS = (*FAST, *OF_THE_TEXT, "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


class Stale(Exception):
    """Error: the text that a mutation replaces is not in the source, or more than once."""


class Mutation(NamedTuple):
    """A fault: `new` in place of the only `old` in the package's source."""

    name: str
    fault: str
    """What is wrong, in words."""
    old: str
    new: str
    tests: tuple[str, ...]
    """Files of tests to run first, such as `losses` for tests/test_losses.py."""

    @property
    def own_tests(self) -> tuple[str, ...]:
        """Arguments of pytest for these files."""
        return (*FAST, *(f"tests/test_{name}.py" for name in self.tests))

    def changed_file(self, package: Path) -> tuple[Path, str]:
        """The file of `package` that has `old`, and its text with the fault. Raises `Stale`."""
        texts = {path: path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))}
        places = {path: count for path, text in texts.items() if (count := text.count(self.old))}
        if sum(places.values()) != 1:
            found = ", ".join(f"{count} in {path.relative_to(package)}" for path, count in places.items()) or "none"
            raise Stale(f"{self.name}: its text must occur once, and occurs: {found}. Bring it along:\n{self.old}")
        (path,) = places
        return path, texts[path].replace(self.old, self.new)


class Outcome(NamedTuple):
    """What the tests said of a fault."""

    caught_by: str | None
    """The first test that failed; None if all passed."""
    seconds: float


def load_mutations(path: Path = ROOT / "tests" / "source_mutations.yaml") -> dict[str, Mutation]:
    """All mutations by name."""
    entries: Any = OmegaConf.to_container(OmegaConf.load(path))
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


def run_tests(folder: Path, arguments: Sequence[str]) -> Outcome:
    """Run pytest in a copy until a test fails."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider", *arguments]
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_WAIT_POLICY": "passive", "PYTEST_ADDOPTS": ""}
    started = time.monotonic()
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - started
    if ended.returncode == 0:
        return Outcome(None, seconds)
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    if not failed:
        raise RuntimeError(f"pytest ended with {ended.returncode}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}")
    return Outcome(failed[1], seconds)


def try_mutation(mutation: Mutation, arguments: Sequence[str]) -> Outcome:
    """Put a fault into a copy of this checkout and run pytest there."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "copy"
        copy_checkout(folder)
        path, text = mutation.changed_file(folder / "ppo_bench")
        path.write_text(text, encoding="utf-8")
        return run_tests(folder, arguments)


def report(mutations: Sequence[Mutation], jobs: int) -> int:
    """Try mutations, `jobs` at a time, and print a row of each; how many no test caught."""
    survived: dict[Mutation, float] = {}

    def show(mutation: Mutation, outcome: Outcome) -> None:
        caught = f"caught by {outcome.caught_by}" if outcome.caught_by else "NOT CAUGHT"
        print(f"{outcome.seconds:6.0f} s  {mutation.name}: {mutation.fault}: {caught}", flush=True)

    def run_own_tests(mutation: Mutation) -> None:
        outcome = try_mutation(mutation, mutation.own_tests)
        if outcome.caught_by:
            show(mutation, outcome)
        else:
            survived[mutation] = outcome.seconds

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(run_own_tests, mutations))
    missed = 0
    for mutation, seconds in survived.items():  # one at a time, since all tests take two cores
        outcome = try_mutation(mutation, ALL_TESTS)
        show(mutation, outcome._replace(seconds=seconds + outcome.seconds))
        missed += outcome.caught_by is None
    print(f"{len(mutations) - missed} of {len(mutations)} faults are caught")
    return missed


def main() -> int:
    """See the module's docstring."""
    assert __doc__
    mutations = load_mutations()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="one of " + ", ".join(mutations))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unchanged", action="store_true")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in mutations]:
        parser.error(f"no such fault: {', '.join(unknown)}")
    if options.unchanged:
        with tempfile.TemporaryDirectory() as scratch:
            copy_checkout(Path(scratch) / "copy")
            outcome = run_tests(Path(scratch) / "copy", ALL_TESTS)
        print(f"{outcome.seconds:6.0f} s  no fault: {outcome.caught_by or 'all tests pass'}")
        return int(outcome.caught_by is not None)
    try:
        for mutation in mutations.values():
            mutation.changed_file(ROOT / "ppo_bench")
    except Stale as error:
        parser.error(str(error))
    return min(1, report([mutations[name] for name in options.names or mutations], options.jobs))


if __name__ == "__main__":
    sys.exit(main())
