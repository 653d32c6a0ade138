"""Fixtures of every test."""

from __future__ import annotations

import gc
import itertools
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import pytest
import torch

from ppo_bench.__main__ import main
from ppo_bench.common.cli import exit_code
from tests.evaluations import CARTPOLE, RUNS
from tests.namespaces import NAMESPACES, Namespace
from tests.training import ROOT, RUN, run_folder, trained

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FILES = itertools.count(1)
"""Files whose tests have ended; after every tenth their garbage is collected."""
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
BUDGET_SECONDS = 40
"""Seconds that the fast tests of a file should take in all. A file above it is named at the end, and fails nothing."""
jax.config.update("jax_num_cpu_devices", 2)  # so that a program of several seeds is divided on any machine
# The folder of `framework.compile_cache` also has the programs that tests compile without a runner.
jax.config.update("jax_compilation_cache_dir", str(Path("~/.cache/ppo_bench/jax").expanduser()))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the files whose tests took longer than `BUDGET_SECONDS`."""
    seconds = defaultdict[str, float](float)
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    for file, spent in sorted(seconds.items(), key=lambda item: -item[1]):
        if spent > BUDGET_SECONDS:
            terminalreporter.write_line(f"{spent:4.0f} s, more than {BUDGET_SECONDS}: {file}")


def pytest_sessionfinish() -> None:
    """Let the end of the interpreter search every object: DuckDB prints those that it never frees."""
    gc.unfreeze()


@pytest.fixture(params=NAMESPACES)
def ns(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Each array namespace in turn, with float64 allowed in JAX for as long as the test runs."""
    with jax.enable_x64(True):
        yield NAMESPACES[request.param]


@pytest.fixture(autouse=True)
def single_precision() -> Iterator[None]:
    """Undo what a runner sets for its whole process, which is usually its own: float64 in JAX.

    Before a test too: fixtures of a wider scope have run by then.
    """
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", False)


@pytest.fixture(autouse=True, scope="module")
def free_compiled_programs() -> Iterator[None]:
    """Drop the programs that the tests of a file compiled, which else fill the memory of a worker."""
    yield
    jax.clear_caches()
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    if next(FILES) % 10 == 0:
        gc.unfreeze()
        gc.collect()


@pytest.fixture(autouse=True)
def skip_older_objects() -> None:
    """Let a training, which begins with a collection, search the objects of the test alone: all others take 0.2 s."""
    gc.freeze()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the test, in which processes find the tests."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return tmp_path


@pytest.fixture
def clone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that the tested code starts use the package that is tested."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A real Chromium."""
    from playwright.sync_api import sync_playwright

    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    assert program, "there is no Chromium: tests/browser/install.sh installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def eager(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run on CartPole by torch_eager; not to be changed."""
    return trained(tmp_path_factory.mktemp("runs"), *CARTPOLE, "framework=torch_eager")


@pytest.fixture(scope="session")
def runs(eager: Path) -> RUNS:
    """Such a run by PyTorch and one by JAX."""
    other = trained(eager.parents[2], *CARTPOLE, "framework=jax_xla")
    return {"torch_eager": eager, "jax_xla": other}


@pytest.fixture
def run(eager: Path, tmp_path: Path) -> Path:
    """A copy of a run, to be changed."""
    return shutil.copytree(eager, tmp_path / "seed1", ignore=shutil.ignore_patterns("evaluations"))


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of round numbers; not to be changed."""
    from tests.reports import write_round_sweep

    return write_round_sweep(tmp_path_factory.mktemp("sweep") / "outputs")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nothing interrupted; not to be changed."""
    outputs = tmp_path_factory.mktemp("finished")
    assert exit_code(main, [*RUN, f"outputs={outputs}"]) == 0
    return run_folder(*RUN, f"outputs={outputs}")


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """A copy of `finished`, under the outputs folder `tmp_path`."""
    folder = run_folder(*RUN, f"outputs={tmp_path}")
    shutil.copytree(finished, folder, symlinks=True)
    return folder
