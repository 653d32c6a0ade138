"""The table of speeds: a row for each pair, a figure wherever a framework can run it."""

from __future__ import annotations

import subprocess
import sys

from tests.training import ROOT

TABLE = ROOT / "launch" / "speed_table.py"


def table(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TABLE), *arguments], check=False, capture_output=True, text=True)


def test_it_has_a_figure_where_a_framework_can_run_the_pair() -> None:
    run = table("--env", "cartpole", "--backend", "jax", "--iterations", "3")
    assert run.returncode == 0
    env, backend, sizes, torch_eager, torch_compile, jax_xla = run.stdout.splitlines()[-1].strip("|").split("|")
    assert [env.strip(), backend.strip(), sizes.strip()] == ["cartpole", "jax", "4 x 128"]
    assert torch_eager.strip() == torch_compile.strip() == ""
    assert int(jax_xla.replace(",", "")) > 1_000


def test_a_wrong_override_is_one_line_before_anything_runs() -> None:
    run = table("--env", "cartpole", "--", "ppo.gama=0.9")
    assert (run.returncode, run.stdout) == (2, "")
    assert (
        run.stderr
        == "ppo_bench: Could not override 'ppo.gama': Key 'gama' not in 'Hyperparameters'; did you mean gamma?\n"
    )
