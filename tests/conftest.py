"""Fixtures of every test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import jax
import pytest
import torch

from tests.namespaces import NAMESPACES, Namespace


@pytest.fixture(params=NAMESPACES)
def ns(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Each array namespace in turn, with float64 allowed in JAX for as long as the test runs."""
    with jax.enable_x64(True):
        yield NAMESPACES[request.param]


@pytest.fixture(autouse=True)
def frameworks_as_they_were() -> Iterator[None]:
    """Undo what a runner sets for its whole process, which is usually its own: float64 in JAX, compiled graphs."""
    before = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", before)
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
