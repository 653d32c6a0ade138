"""The checks that `make gpu-proof` makes: each is a command, of whose files and output the figures are read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppo_bench.runners import checkpoint
from tests.training import ROOT

PART_SECONDS = 530
LEAN = "--compile", "--cudagraphs"
TO_400 = 10_000_000, 1024
FRAMEWORKS = ("torch_eager", "torch_compile", "jax_xla")
Figures = dict[str, Any]


class Check(NamedTuple):
    """One thing that is shown, by a function of the folder that it may write to."""

    name: str
    show: Callable[[Path], Figures]
    """Its figures. Raises `Unshown` if it is not so."""
    goes_on: bool = False
    """Whether another try goes on with what an earlier one left."""


class Unshown(Exception):
    """Why a check fails, in a line."""


class LeftOut(Exception):
    """Why a check cannot be made here."""


def ran(words: Sequence[str], folder: Path, seconds: float = PART_SECONDS) -> str:
    """Output of a command of this Python, which is added to `folder`/said.txt with what the command said on stderr.

    Raises `Unshown` with its last line if it fails.
    """
    command, said = [sys.executable, *words], folder / "said.txt"
    with said.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(command)}\n")
        file.flush()
        try:
            ended = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=file, text=True, timeout=seconds, cwd=ROOT, check=False
            )
        except subprocess.TimeoutExpired as error:
            file.write((error.stdout or b"").decode())
            raise Unshown(f"it was stopped after {seconds:.0f} s") from error
        file.write(ended.stdout)
    if ended.returncode:
        lines = [line for line in said.read_text(encoding="utf-8").splitlines() if line.strip() and line[0] != "$"]
        raise Unshown(f"exit code {ended.returncode}: {lines[-1] if lines else 'without a word'}")
    return ended.stdout


def peer(variable: str, script: str, *words: str) -> Callable[[Path], Figures]:
    """Steps a second on Breakout of a script below the folder `variable` names: of two lengths, over their times."""

    def show(folder: Path) -> Figures:
        root, python = os.environ.get(variable), os.environ.get("PEER_PYTHON")
        if not root or not python:
            raise LeftOut(f"{variable} and PEER_PYTHON are not given")
        seconds, lengths = [], (4 * 1024, 44 * 1024)
        for steps in lengths:
            started = time.perf_counter()
            command = [python, script, "--env-id", "Breakout-v5", "--total-timesteps", str(steps), *words]
            subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=PART_SECONDS)
            seconds.append(time.perf_counter() - started)
        return {"sps": (lengths[1] - lengths[0]) / (seconds[1] - seconds[0])}

    return show


class Proof:
    """The checks for one device; `few` takes few iterations, for a rehearsal."""

    def __init__(self, device: str, few: bool) -> None:
        self.device, self.few = device, few

    def parts(self) -> dict[str, list[Check]]:
        """The checks of each part, the most valuable first."""
        atari, hopper = ["env=breakout", "backend=envpool"], ["env=hopper", "backend=envpool"]
        inside = ["env=cartpole", "framework=jax_xla", "backend=jax"]
        both = f"variants={{device:[cpu,{self.device}]}}"
        graphs = "variants={framework.cudagraphs:[false,true]}"
        recorded = ["frameworks=[torch_compile]", graphs]
        slow_and_fast = ["framework=torch_compile", "framework.cudagraphs=false,true"]
        if self.device == "cpu":
            slow_and_fast = ["framework=torch_eager", "tuning=off,on"]
            recorded = ["frameworks=[torch_eager]", "variants={tuning:[on,off]}"]
        float64 = ["env=cartpole", "precision=float64"]
        few_envs = ["ppo.num_envs=64"] if self.few else ["ppo.num_envs=4096"]
        one = ["framework=torch_compile"] if self.few else []
        exact = [*atari, "framework=torch_compile", "framework.deterministic=true"]
        to_400 = ["experiment=cleanrl/ppo_atari_envpool", "framework=torch_compile"]
        return {
            "same": [
                Check("tests that need a GPU", self.tests),
                Check(
                    "frameworks, Breakout, float64",
                    self.equivalent(*atari, "precision=float64", steps=(4096, 256)),
                ),
                Check("CUDA graphs against plain, Breakout", self.equivalent(*atari, *recorded, steps=(4096, 256))),
                Check("CPU against GPU, CartPole, float64", self.equivalent(*float64, both, steps=(20_480, 2048))),
                Check("CPU against GPU, Hopper", self.equivalent(*hopper, both, steps=(20_480, 2048))),
                Check("frameworks, a memory", self.equivalent("env=cartpole", "network=gru", steps=(20_480, 2048))),
                Check(
                    "frameworks, RND, float64",
                    self.equivalent("env=deep_sea", "precision=float64", steps=(20_480, 2048)),
                ),
                *(Check(f"killed and resumed, {name}", self.resumed(name)) for name in FRAMEWORKS),
            ],
            "speed": [
                Check("Breakout, canonical", self.speed(*atari)),
                Check("CleanRL's Breakout", peer("CLEANRL", "cleanrl/ppo_atari_envpool.py")),
                Check("LeanRL's Breakout", peer("LEANRL", "leanrl/ppo_atari_envpool_torchcompile.py", *LEAN)),
                Check("CartPole in JAX, many environments", self.speed(*inside, "workload=throughput")),
                Check("Hopper, canonical", self.speed(*hopper)),
                Check("Breakout, many environments", self.speed(*atari, *one, "workload=throughput")),
                Check("what CUDA graphs bring", self.speed(*atari, *slow_and_fast)),
                Check("launches and copies of Breakout", self.launches(*atari)),
            ],
            "training": [
                Check("what determinism costs", self.speed(*exact)),
                Check("Breakout, tf32", self.speed(*atari, "precision=tf32", gpu_only=True)),
                Check("Breakout, bfloat16", self.speed(*atari, "precision=bfloat16", *one)),
                Check("16 seeds of CartPole in JAX", self.trained(*inside, "num_seeds=16", steps=(2_000_000, 8192))),
                Check("Brax's Ant", self.trained("env=brax_ant", *few_envs, steps=(20_000_000, 2048))),
            ],
            "breakout": [Check("Breakout, ten million steps", self.trained(*to_400, steps=TO_400), goes_on=True)],
        }

    def tests(self, folder: Path) -> Figures:
        """The tests that are skipped without a GPU."""
        files = ["tests/test_cuda_graphs.py", "tests/test_precision.py"]
        said = ran(["-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider", *files], folder)
        return {"pytest": said.splitlines()[-1]}

    def equivalent(self, *words: str, steps: tuple[int, int]) -> Callable[[Path], Figures]:
        """No differing action in lockstep, by `python -m ppo_bench.equivalence`."""

        def show(folder: Path) -> Figures:
            own = [f"total_timesteps={self._of(steps)}", *self._small(words), f"outputs={folder}"]
            own += [] if any("variants={device" in word for word in words) else [f"device={self.device}"]
            ran(["-m", "ppo_bench.equivalence", *words, *own], folder)
            (found,) = folder.rglob("equivalence.json")
            each = json.loads(found.read_text())["frameworks"].items()
            return {name: {"differing_actions": one["differing_actions"], **one["largest"]} for name, one in each}

        return show

    def speed(self, *words: str, gpu_only: bool = False) -> Callable[[Path], Figures]:
        """Steps a second and the share of the serial limit, by `python -m ppo_bench.bench`."""

        def show(folder: Path) -> Figures:
            if gpu_only and self.device == "cpu":
                raise LeftOut("needs a GPU")
            few = ["rounds=1", "iterations=1", *self._small(words)] if self.few else ["rounds=3", "iterations=5"]
            ran(["-m", "ppo_bench.bench", *words, f"device={self.device}", *few, f"outputs={folder}"], folder)
            (found,) = (folder / "bench").glob("*.json")
            keys = ("sps", "fraction_of_serial_limit", "environment_alone_sps", "gpu_memory_bytes")
            programs = json.loads(found.read_text())["programs"]
            names = ("framework", "backend", "overrides")
            return {
                ", ".join(filter(None, (row[name] for name in names))): {key: row[key] for key in keys}
                for row in programs
            }

        return show

    def launches(self, *words: str) -> Callable[[Path], Figures]:
        """Launches and copies of an iteration."""

        def show(folder: Path) -> Figures:
            own = [f"device={self.device}", *self._small(words), f"outputs={folder}"]
            said = ran(["-m", "ppo_bench.bench", "trace=true", *words, *own], folder)
            return {"counted": [line for line in said.splitlines() if " launches in " in line]}

        return show

    def resumed(self, framework: str) -> Callable[[Path], Figures]:
        """A run that is stopped and goes on ends with the arrays of one that was not, by their digests."""

        def show(folder: Path) -> Figures:
            words = ["env=breakout", "backend=envpool", "checkpoint.every_iterations=2", f"framework={framework}"]
            words += ["framework.deterministic=true", f"device={self.device}", *self._small(words)]
            words += [f"total_timesteps={1024 if self.few else 8192}"]  # eight iterations
            whole = self._train(folder, *words, f"outputs={folder}/whole")
            command = [sys.executable, "-m", "ppo_bench", *words, f"outputs={folder}/stopped"]
            process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            kept = folder / "stopped"
            while process.poll() is None and not list(kept.rglob("checkpoints/iteration_*")):
                time.sleep(0.05)
            process.kill()
            process.wait()
            again = self._train(folder, *words, f"outputs={folder}/stopped")
            digests = [checkpoint.digest(checkpoint.load_named(checkpoint.find(run)).arrays) for run in (whole, again)]
            if digests[0] != digests[1]:
                raise Unshown(f"the arrays differ: {digests[0][:12]} and {digests[1][:12]}")
            return {"sha256": digests[0][:12]}

        return show

    def trained(self, *words: str, steps: tuple[int, int]) -> Callable[[Path], Figures]:
        """A training from beginning to end."""

        def show(folder: Path) -> Figures:
            own = [f"device={self.device}", f"total_timesteps={self._of(steps)}", f"outputs={folder}"]
            run = self._train(folder, *words, *self._small(words), *own)
            result = json.loads((run / "result.json").read_text())
            return {key: result[key] for key in ("steady_sps", "wall_seconds", "final_return_mean", "num_seeds")}

        return show

    def _of(self, steps: tuple[int, int]) -> int:
        return steps[1] if self.few else steps[0]

    def _small(self, words: Sequence[str]) -> list[str]:
        """Few steps of a few environments, for a rehearsal on images."""
        images = any("breakout" in word or "atari" in word for word in words)
        return ["ppo.num_envs=4", "ppo.num_steps=32", "seed=2"] if self.few and images else []  # seed 1 meets a kink

    def _train(self, folder: Path, *words: str) -> Path:
        return Path(ran(["-m", "ppo_bench", *words], folder).splitlines()[-1])
