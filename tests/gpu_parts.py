"""The checks that `make gpu-proof` makes, in parts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ppo_bench.common.paths import FRAMEWORKS
from ppo_bench.runners import checkpoint
from tests.gpu_checks import Check, Figures, LeftOut, Unshown, ran
from tests.gpu_race import LEAN, brax, games_alone, on_breakout, purejaxrl, race, training_speed
from tests.training import ROOT

TO_400 = 10_000_000, 1024


class Proof:
    """The checks for one device; `few` takes few iterations, for a rehearsal."""

    def __init__(self, device: str, few: bool) -> None:
        self.device, self.few = device, few

    def parts(self) -> dict[str, list[Check]]:
        """The checks of each part, the most valuable first."""
        atari, hopper = ["env=breakout", "backend=envpool"], ["env=hopper", "backend=envpool"]
        inside = ["env=cartpole", "framework=jax_xla", "backend=device"]
        both = f"device=cpu,{self.device}"
        slow_and_fast = ["framework=torch_compile", "framework.cudagraphs=false,true,update"]
        if self.device == "cpu":
            slow_and_fast = ["framework=torch_eager", "tuning=off,on"]
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
                Check(
                    "CUDA graphs against plain, Breakout", self.equivalent(*atari, *slow_and_fast, steps=(4096, 256))
                ),
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
                Check("Breakout", self.speed(*atari)),
                Check("CartPole in JAX, many environments", self.speed(*inside, "ppo.num_envs=2048")),
                Check("Hopper", self.speed(*hopper)),
                Check("Breakout, many environments", self.speed(*atari, *one, "ppo.num_envs=64")),
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
            "end_to_end": self._end_to_end(),
            "race": self._races(),
            "breakout": [Check("Breakout, ten million steps", self.trained(*to_400, steps=TO_400), goes_on=True)],
        }

    def _end_to_end(self) -> list[Check]:
        """PyTorch beside JAX with the environments on the device."""
        words = ["env=cartpole", "backend=device", "ppo.num_steps=128"]
        numbers = "16,32" if self.few else "64,512,2048,16384"
        graphs = ["framework=torch_compile", "framework.cudagraphs=false,true,update"]
        graphs = ["framework=torch_eager"] if self.device == "cpu" else graphs
        return [
            Check("PyTorch beside JAX, CartPole", self.speed(*words, f"ppo.num_envs={numbers}")),
            Check("rollouts and updates in one graph", self.speed(*words, "ppo.num_envs=64", *graphs)),
            Check("launches and copies of CartPole", self.launches(*words, "ppo.num_envs=64")),
        ]

    def _races(self) -> list[Check]:
        """Programs of others beside ours."""
        rounds, updates = (1, 4) if self.few else (3, 190)
        checks = []
        for num_envs, num_seeds in ((64, 1), (4, 2)) if self.few else ((2048, 1), (4, 256)):
            for own, of_jax in (("float32", "highest"),) if self.few else (("float32", "highest"), ("tf32", "default")):
                inside = ["env=cartpole", "framework=jax_xla", "backend=device", f"device={self.device}"]
                inside += [f"ppo.num_envs={num_envs}", f"num_seeds={num_seeds}", f"precision={own}"]
                inside += [f"total_timesteps={num_envs * 128 * updates}"]
                inside += [f"checkpoint.every_iterations={updates}"]
                peer = purejaxrl(num_envs, num_seeds, updates, of_jax)
                programs = race({"jax_xla": training_speed(*inside)}, {"PureJaxRL": peer}, rounds)
                checks.append(Check(f"PureJaxRL, CartPole {num_envs} x {num_seeds}, {own}", programs))
        num_envs, iterations = (8, 3) if self.few else (4096, 60)
        ant = ["env=brax_ant", f"device={self.device}", f"ppo.num_envs={num_envs}", "ppo.num_steps=32"]
        ant += [f"total_timesteps={num_envs * 32 * iterations}", f"checkpoint.every_iterations={iterations}"]
        peer = brax(num_envs, iterations, "highest")
        checks.append(Check("Brax's PPO, Ant", race({"jax_xla": training_speed(*ant)}, {"Brax": peer}, rounds)))
        steps = 512 if self.few else 40 * 1024
        canonical = ["env=breakout", "backend=envpool", f"device={self.device}", f"total_timesteps={steps}"]
        frameworks = ("torch_eager",) if self.few else ("torch_compile", "jax_xla")
        mine = {
            f"{name}{groups}": training_speed(*canonical, f"framework={name}", *groups.split(), *self._small(canonical))
            for name in frameworks
            for groups in ("", " backend.num_groups=2")
        }
        lean = on_breakout("LEANRL", "leanrl/ppo_atari_envpool_torchcompile.py", *LEAN)
        clean = on_breakout("CLEANRL", "cleanrl/ppo_atari_envpool.py")
        checks.append(Check("Breakout beside LeanRL", race(mine, {"LeanRL": lean}, rounds)))
        checks.append(Check("Breakout beside CleanRL", race(mine, {"CleanRL": clean}, rounds)))
        for num_envs in (4,) if self.few else (64, 128, 256):
            many = [*canonical, *self._small(canonical), f"ppo.num_envs={num_envs}"]
            many += [f"total_timesteps={num_envs * (128 if self.few else 128 * 20)}"]
            mine = {name: training_speed(*many, f"framework={name}") for name in frameworks}
            alone = {"EnvPool alone": games_alone(num_envs, 50 if self.few else 1_000)}
            checks.append(Check(f"{num_envs} Breakouts beside EnvPool alone", race(mine, alone, rounds)))
        return checks

    def tests(self, folder: Path) -> Figures:
        """The tests that are skipped without a GPU."""
        names = ("cuda_graphs", "env_groups", "precision", "torch_envs")
        files = [f"tests/test_{name}.py" for name in names]
        said = ran(["-m", "pytest", "-q", "-n", "4", "-p", "no:cacheprovider", *files], folder)
        return {"pytest": said.splitlines()[-1]}

    def equivalent(self, *words: str, steps: tuple[int, int]) -> Callable[[Path], Figures]:
        """No differing action in lockstep, by `python -m ppo_bench.equivalence`."""

        def show(folder: Path) -> Figures:
            own = [f"total_timesteps={self._of(steps)}", *self._small(words), f"outputs={folder}"]
            own += [] if any(word.startswith("device=") for word in words) else [f"device={self.device}"]
            ran(["-m", "ppo_bench.equivalence", *words, *own], folder)
            (found,) = folder.rglob("equivalence.json")
            each = json.loads(found.read_text())["frameworks"].items()
            return {name: {"differing_actions": one["differing_actions"], **one["largest"]} for name, one in each}

        return show

    def speed(self, *words: str, gpu_only: bool = False) -> Callable[[Path], Figures]:
        """Steps a second and memory, by `python -m ppo_bench.bench`."""

        def show(folder: Path) -> Figures:
            if gpu_only and self.device == "cpu":
                raise LeftOut("needs a GPU")
            few = ["rounds=1", "iterations=1", *self._small(words)] if self.few else ["rounds=3", "iterations=5"]
            ran(["-m", "ppo_bench.bench", *words, f"device={self.device}", *few, f"outputs={folder}"], folder)
            (found,) = (folder / "bench").glob("*.json")
            keys = ("sps", "gpu_memory_bytes")
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
