"""Fixtures of every test."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest

from tests.namespaces import NAMESPACES, Namespace


@pytest.fixture(params=NAMESPACES)
def ns(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Each array namespace in turn, with float64 allowed in JAX for as long as the test runs."""
    with jax.enable_x64(True):
        yield NAMESPACES[request.param]


@pytest.fixture(autouse=True)
def jax_as_it_was() -> Iterator[None]:
    """Undo what a runner of float64 sets for its whole process."""
    before = jax.config.read("jax_enable_x64")
    yield
    jax.config.update("jax_enable_x64", before)
