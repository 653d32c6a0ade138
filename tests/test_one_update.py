"""One update from the same weights and transitions: losses, gradients and parameters agree, tensor by tensor.

It is one step of Adam in float32, from weights and moments of a short training. tests/test_transcription.py compares
several steps in float64, in which ratios and values leave their starting points and are clipped.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Metrics, TrainingSpec
from tests.runners import problem_for, relative_distance, runner_for
from tests.scenes import RandomScenes

# Every switch is on in one of these and off in the other.
SWITCHES = ("norm_adv", "clip_vloss", "mask_resets", "bootstrap_truncated", "norm_obs", "norm_reward", "clipped")
DESIGNS = {"1101001": (1, 1, 0, 1, 0, 0, 1), "0010110": (0, 0, 1, 0, 1, 1, 0)}
CASES = [(False, False, "1101001"), (False, True, "0010110"), (True, False, "1101001")]
TOLERANCE = 1e-5


def overrides_of(design: str, pixels: bool) -> list[str]:
    switches = dict(zip(SWITCHES, DESIGNS[design], strict=True))
    gradient_clipping = 0.1 if switches.pop("clipped") else 1e6
    if pixels:
        switches["norm_obs"] = 0  # not for images of bytes
    return [f"ppo.max_grad_norm={gradient_clipping}", *(f"ppo.{k}={bool(v)}".lower() for k, v in switches.items())]


def problem_of(pixels: bool, continuous: bool, design: str) -> TrainingSpec:
    fixed = ["ppo.num_minibatches=1", "ppo.num_steps=32", "ppo.update_epochs=1", "precision=float32"]
    return problem_for(RandomScenes(4, pixels, continuous), 10, [*fixed, *overrides_of(design, pixels)])


@functools.cache
def start(pixels: bool, continuous: bool, design: str) -> Arrays:
    """The state from which every framework makes its update."""
    runner = runner_for("torch_eager", problem_of(pixels, continuous, design))
    # From seed 3 a rectifier is at its kink: moved by an ulp, torch_eager itself ends 1e-4 away.
    state = runner.init(4)
    for _ in range(5):
        state, _, _ = runner.iterate(state)
    return runner.export(state)


@functools.cache
def update(framework: str, pixels: bool, continuous: bool, design: str) -> tuple[Arrays, Metrics]:
    """The state after one iteration from `start` on the same scenes, and its metrics."""
    runner = runner_for(framework, problem_of(pixels, continuous, design))
    state, metrics, _ = runner.iterate(runner.restore(start(pixels, continuous, design)))
    return runner.export(state), metrics


def gradients(before: Arrays, after: Arrays) -> Arrays:
    """The clipped gradients of one step, from how they moved Adam's mean: it takes in a tenth of them."""
    return {
        name: (after[name].astype(np.float64) - 0.9 * before[name]) * 10.0
        for name in before
        if name.startswith("adam.mean.")
    }


@pytest.mark.parametrize(
    ("framework", "pixels", "continuous", "design"),
    [*(("jax_xla", *case) for case in CASES), ("torch_compile", *CASES[-1])],
)
def test_losses_gradients_and_parameters_agree(framework: str, pixels: bool, continuous: bool, design: str) -> None:
    case = (pixels, continuous, design)
    before = start(*case)
    expected, expected_metrics = update("torch_eager", *case)
    found, metrics = update(framework, *case)
    for name, array in expected.items():
        if name.startswith(("adam.", "params.", "normalize.")):
            assert relative_distance(found[name], array) < TOLERANCE, name
    for name, array in gradients(before, expected).items():
        assert relative_distance(gradients(before, found)[name], array) < TOLERANCE, name
    assert list(metrics) == list(expected_metrics)
    for name, value in metrics.items():
        assert value == pytest.approx(expected_metrics[name], rel=TOLERANCE, abs=TOLERANCE), name


def test_gradients_are_clipped() -> None:
    """Otherwise the comparison above would not see it."""
    case = (True, False, "1101001")
    after, metrics = update("torch_eager", *case)
    assert metrics["gradient_norm"] > 0.1
    clipped = gradients(start(*case), after)
    assert np.linalg.norm(np.concatenate([a.ravel() for a in clipped.values()])) == pytest.approx(0.1, rel=1e-4)
