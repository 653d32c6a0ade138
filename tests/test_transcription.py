"""Iterations of every framework, against a plain transcription of PPO that shares only its random numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from ppo_bench.common.paths import CONF, FRAMEWORKS
from ppo_bench.mathematics.arrays import Arrays, select_prefix
from ppo_bench.runners.base import TrainingSpec
from tests.runners import problem_for, runner_for
from tests.scenes import Endings
from tests.transcribed_layers import HIDDEN, SIGHTS, Normalised, Policy, mlp
from tests.transcribed_networks import NETWORKS
from tests.transcribed_rnd import OVERRIDES as RND
from tests.transcribed_rnd import Rnd
from tests.transcribed_transformer import TRXL, trxl
from tests.transcription import Ppo

SEED = 3
ITERATIONS = 2
"""How many are compared: the second begins with steps that only reset, and with what Adam and statistics remember."""
OF_TRAINING = 10
"""How many there would be, over which the learning rate falls."""
TOLERANCE = 1e-12
"""Largest distance, in lengths of the parameters' movement since they were drawn."""
TOLERANCE_OF_EACH = 1e-11
"""The same of one parameter, which may have moved little. With AVX-512 the largest was 1.4e-12."""
FLOOR = 1e-3
"""Shortest movement of one parameter, in lengths of that of all, that its own distance is measured by."""

VECTOR = spaces.Box(-np.inf, np.inf, (5,), np.float32)
BYTES = spaces.Box(0, 255, (6,), np.uint8)
BOOLS = spaces.Box(0, 1, (6,), bool)  # type: ignore[arg-type]
FRAMES = spaces.Box(0, 255, (4, 36, 36), np.uint8)
COLOURS = spaces.Box(0, 255, (12, 12, 3), np.uint8)
SCREEN = spaces.Box(0, 255, (64, 64, 3), np.uint8)
SYMBOLS = spaces.Box(0, 1, (6, 6, 4), bool)  # type: ignore[arg-type]
CHOICE = spaces.Discrete(3)
CHOICES = spaces.MultiDiscrete([3, 2, 4])
SWITCHES = spaces.MultiBinary(3)
FORCES = spaces.Box(-0.5, 0.5, (2,), np.float32)

EAGER, JAX = ("torch_eager",), ("jax_xla",)
BOTH = (*EAGER, *JAX)

ALGORITHMS: dict[str, type[Ppo]] = {"ppo": Ppo, "rnd": Rnd}
"""The reference of each file of conf/algorithm."""

CLEANRL = ("ppo.bootstrap_truncated=false", "ppo.mask_resets=false")
NORMALIZED = ("ppo.norm_obs=true", "ppo.norm_reward=true", "ppo.obs_clip=1.5", "ppo.reward_clip=1.0")
ANNEALED = (
    *("ppo.anneal_timesteps=100", "ppo.final_learning_rate=4e-3", "ppo.ent_coef=0.1", "ppo.final_ent_coef=0.02"),
    "ppo.weight_decay=0.5",
)
SMALL = ("ppo.num_steps=8", "ppo.update_epochs=2", "ppo.num_minibatches=2")


class Case(NamedTuple):
    """A network on some spaces, and the keys that are not as in the case of all others."""

    network: str = "mlp"
    observations: spaces.Box = VECTOR
    actions: spaces.Space = CHOICE
    overrides: tuple[str, ...] = ()
    reference: Callable[[spaces.Box, spaces.Space], Policy] | None = None
    """None for that of `network`'s file."""
    rules: bool = False
    algorithm: str = "ppo"
    frameworks: Sequence[str] = EAGER
    """torch_eager executes every case, and the other two one of each kind of program."""
    slow: Sequence[str] = ()
    """Frameworks whose case takes seconds and is left to `make test-slow`, as every case of torch_compile is (10 s)."""

    @property
    def configuration(self) -> list[str]:
        """Everything that the package is told; large steps, so that ratios, values and gradients are clipped."""
        steps = SMALL if len(self.observations.shape) == 3 else ("ppo.num_steps=16",)
        network = [f"network={self.network}"]
        if self.network == "trxl":
            network += TRXL
        elif self.network == "auto" or len(self.observations.shape) == 1:
            network.append(f"network.hidden_sizes={list(HIDDEN)}")
        fixed = ("precision=float64", "ppo.learning_rate=1e-2", "ppo.clip_coef=0.05", f"algorithm={self.algorithm}")
        return [*fixed, *steps, *network, *self.overrides]


CASES = {
    "one choice": Case(),
    "three choices": Case(actions=CHOICES),
    "switches": Case(actions=SWITCHES),
    "forces": Case(actions=FORCES),
    "rectifiers": Case(overrides=("network.activation=relu",), reference=functools.partial(mlp, activation=nn.ReLU)),
    "normalised": Case(overrides=("network.layer_norm=true",), reference=functools.partial(mlp, hidden=Normalised)),
    "bytes": Case(observations=BYTES),
    "bools": Case(observations=BOOLS),
    "nature_cnn": Case("nature_cnn", FRAMES),
    "nature_cnn, forces": Case("nature_cnn", FRAMES, FORCES),
    "impala_cnn": Case("impala_cnn", COLOURS, frameworks=BOTH, slow=JAX),
    "minatar_cnn": Case("minatar_cnn", SYMBOLS, frameworks=BOTH),
    "wide_mlp, rules": Case("wide_mlp", BOOLS, rules=True, frameworks=FRAMEWORKS),
    "auto, vectors": Case("auto", actions=FORCES),
    "auto, frames": Case("auto", FRAMES, slow=EAGER),
    "auto, screens": Case("auto", SCREEN, overrides=("ppo.num_steps=4", "ppo.update_epochs=1"), slow=EAGER),
    "auto, symbols": Case("auto", SYMBOLS, CHOICES),
    "combined": Case("combined", SIGHTS, FORCES, SMALL, frameworks=BOTH, slow=BOTH),
    "auto, sights": Case("auto", SIGHTS, overrides=("ppo.num_steps=4", "ppo.update_epochs=1"), slow=EAGER),
    "limits are ends": Case(overrides=("ppo.bootstrap_truncated=false",)),
    "resets are learnt": Case(overrides=("ppo.mask_resets=false",)),
    "as CleanRL": Case(actions=FORCES, overrides=CLEANRL),
    "unclipped values": Case(overrides=("ppo.clip_vloss=false",)),
    "raw advantages": Case(overrides=("ppo.norm_adv=false",)),
    "unclipped gradients": Case(overrides=("ppo.max_grad_norm=100.0", "ppo.anneal_lr=false")),
    "annealed": Case(overrides=ANNEALED, frameworks=BOTH),
    "stopped": Case(overrides=("ppo.target_kl=0.002",), frameworks=BOTH),
    "normalized": Case(actions=FORCES, overrides=NORMALIZED, frameworks=FRAMEWORKS),
    "rules": Case(rules=True),
    "rules, resets are learnt": Case(actions=CHOICES, rules=True, overrides=("ppo.mask_resets=false",)),
    "lstm": Case("lstm", actions=FORCES, overrides=("ppo.num_minibatches=2",), frameworks=BOTH),
    "lstm, as CleanRL": Case("lstm", overrides=(*CLEANRL, "ppo.num_minibatches=2")),
    "gru": Case("gru", actions=CHOICES, overrides=("ppo.num_minibatches=2",), frameworks=BOTH, slow=JAX),
    "lstm_cnn": Case("lstm_cnn", FRAMES, CHOICES, frameworks=FRAMEWORKS, slow=BOTH),
    "rnd": Case(algorithm="rnd", overrides=RND, frameworks=FRAMEWORKS, slow=JAX),
    "rnd, as CleanRL": Case(algorithm="rnd", overrides=(*RND, *CLEANRL)),
    "rnd, frames": Case("nature_cnn", FRAMES, CHOICES, RND, algorithm="rnd", slow=EAGER),
    "rnd, rnd_cnn": Case("rnd_cnn", FRAMES, overrides=RND, algorithm="rnd", frameworks=BOTH, slow=BOTH),
    "rnd, lstm": Case(
        "lstm", actions=FORCES, overrides=(*RND, "ppo.num_minibatches=2"), algorithm="rnd", frameworks=BOTH, slow=BOTH
    ),
    "trxl": Case("trxl", frameworks=FRAMEWORKS),
    "trxl, learned": Case(
        "trxl",
        actions=FORCES,
        overrides=("network.positions=learned",),
        reference=functools.partial(trxl, positions="learned"),
        frameworks=BOTH,
        slow=BOTH,
    ),
    "trxl, frames": Case(
        "trxl",
        FRAMES,
        CHOICES,
        overrides=("network.positions=none",),
        reference=functools.partial(trxl, positions="none"),
        slow=EAGER,
    ),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Let the reference compute alone: PyTorch's threads and JAX's would wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Compared(NamedTuple):
    """A runner's parameters and the reference's, both after so many iterations."""

    before: Arrays
    found: Arrays
    expected: Arrays

    def of_all(self) -> float:
        """The distance of all parameters together."""
        return self.distance(self.before) / self.moved(self.before)

    def of_each(self) -> dict[str, float]:
        """The distance of each."""
        shortest = FLOOR * self.moved(self.before)
        return {name: self.distance([name]) / max(self.moved([name]), shortest) for name in self.before}

    def distance(self, names: Iterable[str]) -> float:
        return _length(self.found[name] - self.expected[name] for name in names)

    def moved(self, names: Iterable[str]) -> float:
        return _length(self.expected[name] - self.before[name] for name in names)


def _length(arrays: Iterable[np.ndarray]) -> float:
    return float(np.linalg.norm(np.concatenate([array.ravel() for array in arrays])))


def compared(framework: str, spec: TrainingSpec, reference_for: Callable[[Arrays], Ppo]) -> tuple[list[Compared], Ppo]:
    """A runner and the reference after each iteration, and the latter with its counts.

    `reference_for` makes it from the frozen arrays when the runner has played.
    """
    runner = runner_for(framework, spec)
    state = runner.init(SEED)
    before, frozen = (select_prefix(kind, runner.export(state)) for kind in ("params", "frozen"))
    found = []
    for _ in range(ITERATIONS):
        state, _, _ = runner.iterate(state)
        found.append(select_prefix("params", runner.export(state)))
    runner.close()
    torch.set_num_threads(1)
    reference, rows = reference_for(frozen), []
    reference.policy.load(before)
    for arrays in found:
        reference.iterate()
        rows.append(Compared(before, arrays, reference.policy.arrays()))
    return rows, reference


@pytest.mark.parametrize(
    ("framework", "name"),
    [
        pytest.param(framework, name, marks=[pytest.mark.slow] * (framework in (*case.slow, "torch_compile")))
        for framework in FRAMEWORKS
        for name, case in CASES.items()
        if framework in case.frameworks
    ],
)
def test_iterations_equal_a_plain_transcription(framework: str, name: str) -> None:
    case = CASES[name]
    steps = int(dict(word.split("=", 1) for word in case.configuration)["ppo.num_steps"])
    scenes = Endings(case.observations, case.actions, steps, case.rules)
    spec = problem_for(scenes, OF_TRAINING, case.configuration)

    def reference_for(frozen: Arrays) -> Ppo:
        kind, policy = ALGORITHMS[case.algorithm], (case.reference or NETWORKS[case.network])
        around = kind.around(policy(case.observations, case.actions), case.observations, frozen)
        return kind(around, scenes, spec.ppo, OF_TRAINING, SEED)

    rows, reference = compared(framework, spec, reference_for)
    for iteration, row in enumerate(rows, 1):
        assert row.of_all() < TOLERANCE, iteration
        for parameter, distance in row.of_each().items():
            assert distance < TOLERANCE_OF_EACH, (iteration, parameter)
            assert row.moved([parameter]) > 0.0, (iteration, parameter)
    # What is compared was at work.
    assert reference.clipped > 0
    assert reference.kept > 0
    assert (reference.shrunk > 0) == (name != "unclipped gradients")
    assert (reference.epochs < ITERATIONS * reference.hp.update_epochs) == (name == "stopped")


@pytest.mark.parametrize(
    ("group", "references", "compared_ones"),
    [
        ("network", NETWORKS, {case.network for case in CASES.values()}),
        ("algorithm", ALGORITHMS, {case.algorithm for case in CASES.values()}),
    ],
)
def test_every_network_and_algorithm_is_compared(
    group: str, references: dict[str, object], compared_ones: set[str]
) -> None:
    for name in sorted({path.stem for path in (CONF / group).glob("*.yaml")} - {"own"}):  # a module of the user's
        assert name in references, (
            f"conf/{group}/{name}.yaml has no reference in plain PyTorch: see tests/transcription.py"
        )
        assert name in compared_ones, f"conf/{group}/{name}.yaml has no case in tests/test_transcription.py"
