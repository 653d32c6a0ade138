"""`bench compare`: ratios of known figures, and files that are no benches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ppo_bench.commands.bench.command import main
from ppo_bench.common.cli import exit_code
from ppo_bench.runs.provenance import provenance
from tests.refusals import assert_one_line


def program(framework: str, sps: float, spread: float, **changes: Any) -> dict[str, Any]:
    about = {"framework": framework, "backend": "gymnasium", "overrides": "", "num_envs": 4, "num_steps": 128}
    about["precision"] = "float32"
    return about | {"sps": sps, "sps_slowest": sps - spread, "sps_fastest": sps + spread} | changes


def write(path: Path, rows: list[dict[str, Any]], **changes: Any) -> str:
    about = {"schema_version": 1, "env": "cartpole", "workload": "canonical"} | provenance()
    path.write_text(json.dumps(about | {"programs": rows} | changes))
    return str(path)


def compared(capsys: pytest.CaptureFixture[str], *files: str) -> list[str]:
    assert exit_code(main, ["compare", *files]) == 0
    return capsys.readouterr().out.splitlines()


def test_two_machines_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hardware = provenance()["hardware"] | {"cpu": "Abacus", "gpu": "NVIDIA H100", "cores": 16, "cores_available": 8}
    a = write(tmp_path / "a.json", [program("torch_eager", 10_000, 500), program("jax_xla", 30_000, 1_000)])
    rows = [program("torch_eager", 25_000, 100), program("jax_xla", 29_500, 1_000), program("torch_compile", 7, 1)]
    b = write(tmp_path / "b.json", rows, hardware=hardware)
    lines = compared(capsys, a, b)
    assert lines[0] == "cartpole, canonical: environment steps per second"
    assert lines[2].startswith("B: NVIDIA H100, Abacus, 8 of 16 cores, torch ")
    assert [line.split() for line in lines[4:7]] == [
        ["torch_eager", "gymnasium", "4", "x", "128", "10,000", "25,000", "2.50"],
        ["jax_xla", "gymnasium", "4", "x", "128", "30,000", "29,500", "0.98", "~"],
        ["torch_compile", "gymnasium", "4", "x", "128", "-", "7"],
    ]
    assert lines[7] == "~: the slowest and fastest iterations of the two overlap"
    assert max(map(len, lines[3:])) <= 80


def test_what_the_benches_asked_for_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Precisions are different programs, other overrides of a whole bench stand beside its machine, as does a CPU."""
    plain, rounded = program("torch_eager", 100, 1), program("torch_eager", 200, 1, precision="bfloat16")
    hardware = provenance()["hardware"] | {"cpu": "Abacus", "gpu": "NVIDIA H100"}
    a = write(tmp_path / "a.json", [plain], hardware=hardware, device="cpu", overrides=["tuning=off"])
    lines = compared(capsys, a, write(tmp_path / "b.json", [plain, rounded]))
    assert lines[1].startswith("A: Abacus, ")
    assert "device=cpu tuning=off" in lines[1]
    assert [line.split()[5:] for line in lines[4:6]] == [["100", "100", "1.00", "~"], ["bfloat16", "-", "200"]]


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (None, "b.json: python -m ppo_bench.bench writes it"),
        ("{", "b.json is damaged ("),
        ("{}", "b.json is no bench: choose a file of python -m ppo_bench.bench"),
        ({"env": "breakout"}, "is of env=cartpole and"),
        ({"programs": []}, "have no program in common"),
        ({"programs": [{"framework": "jax_xla"}]}, "lacks what a bench writes"),
    ],
)
def test_wrong_input_is_one_line(
    content: str | dict[str, Any] | None, fragment: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = write(tmp_path / "a.json", [program("jax_xla", 3, 1)]), tmp_path / "b.json"
    if isinstance(content, dict):
        write(b, [program("jax_xla", 3, 1)], **content)
    elif content is not None:
        b.write_text(content)
    assert exit_code(main, ["compare", a, str(b)]) == 2
    assert_one_line(capsys.readouterr().err, fragment)


def test_one_file_is_too_few(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(main, ["compare", write(tmp_path / "a.json", [])]) == 2
    assert_one_line(capsys.readouterr().err, "the following arguments are required: FILE.json")
