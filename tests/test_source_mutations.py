"""The faults of source_mutations.yaml fit the source as it stands, and the command tells what catches one."""

from __future__ import annotations

import ast

import pytest

from tests.source_mutations import ROOT, Mutation, load_mutations, try_mutation

MUTATIONS = load_mutations()


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_fault_fits_the_source(mutation: Mutation) -> None:
    path, text = mutation.changed_file(ROOT / "ppo_bench")
    assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(path.read_text(encoding="utf-8")))
    for name in mutation.tests:
        assert (ROOT / "tests" / f"test_{name}.py").exists(), name


@pytest.mark.slow
def test_a_fault_is_caught_and_none_is_not() -> None:
    fault = MUTATIONS["gae_sign"]
    by_hand = (*fault.own_tests, "-k", "gae_by_hand")
    found = try_mutation(fault, by_hand)
    assert found.caught_by is not None
    assert found.caught_by.startswith("tests/test_advantages.py::test_gae_by_hand[numpy-")
    harmless = fault._replace(new="return decay * next_advantage + delta")
    assert try_mutation(harmless, by_hand).caught_by is None
