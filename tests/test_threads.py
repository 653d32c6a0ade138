"""Threads of PyTorch: as many as pay off for the arrays of a run, whatever an earlier run in the process had."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ppo_bench.configuration.load import load_config
from ppo_bench.networks.spec import Mlp, NatureCnn
from ppo_bench.runners.torch_device import DEFAULT_THREADS, set_threads

FLAT, FRAMES, CHOICES = Box(-1, 1, (400,), np.float32), Box(0, 255, (84, 84, 4), np.uint8), Discrete(2)
NARROW = Mlp([64, 64], "tanh").build(FLAT, CHOICES)


@pytest.fixture(autouse=True)
def _threads_as_before() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_run_after_one_with_a_single_thread_has_the_default_again() -> None:
    assert DEFAULT_THREADS > 1  # else this test shows nothing
    counts = []
    for network in (NARROW, NatureCnn().build(FRAMES, CHOICES), NARROW, Mlp([512, 512], "tanh").build(FLAT, CHOICES)):
        set_threads(network.parameters, None)
        counts.append(torch.get_num_threads())
    assert counts == [1, DEFAULT_THREADS, 1, DEFAULT_THREADS]


def test_wide_layers_of_an_algorithm_count_too() -> None:
    """The predictor and the target of random network distillation have up to 512 x 512 weights."""
    rnd = load_config(["env=deep_sea", "algorithm=rnd"]).algorithm
    set_threads((*NARROW.parameters, *rnd.learnt(NARROW), *rnd.frozen(NARROW)), None)
    assert torch.get_num_threads() == DEFAULT_THREADS


def test_a_number_that_is_asked_for_is_taken() -> None:
    set_threads(NARROW.parameters, 2)
    assert torch.get_num_threads() == 2
    set_threads(NatureCnn().build(FRAMES, CHOICES).parameters, None, most=1)
    assert torch.get_num_threads() == 1
