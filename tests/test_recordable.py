"""Functions recorded as CUDA graphs: they call only what can be recorded. Shown without a GPU.

A recording cannot wait for the device, copy between it and the host, or follow a tensor to another address.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ppo_bench.mathematics import ppo
from ppo_bench.runners.base import TrainingSpec
from ppo_bench.runners.torch import TorchLearner
from tests.without_data import CASES, arrays_of, masked_problem, problem_of, record, seen_of

pytestmark = pytest.mark.slow
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "unique_dim", "equal", "is_nonzero")
"""Operations whose result the host has to wait for."""
COPIES = ("to", "_to_copy", "cpu", "cuda", "copy_")
FROM_THE_HOST = ("lift_fresh", "lift_fresh_copy")
"""Tensors of Python's or NumPy's numbers, which are copied to the device from memory that may move."""


class Recording(TorchDispatchMode):
    """What PyTorch is asked for within it can be recorded, or is an error that names it."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = func.overloadpacket.__name__, tree_leaves((args, kwargs))
        assert name not in WAITS, f"{name}: the host waits for the device"
        assert name not in FROM_THE_HOST, f"{name}: numbers of the host are copied to the device"
        if name in ("index", "index_put", "index_put_"):
            flags = [x for x in given if isinstance(x, torch.Tensor) and x.dtype == torch.bool]
            assert not flags, f"{name} by flags: the host waits for how many there are"
        if name in COPIES:
            assert len(_devices(args, kwargs)) == 1, f"{name}: a copy between host and device"
        return func(*args, **(kwargs or {}))


def _devices(args: Any, kwargs: Any) -> set[str]:
    """The kinds of device of tensors that an operation takes, and of the one that it is to bring its result to."""
    found = {x.device.type for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
    wanted = (kwargs or {}).get("device")
    return found | ({torch.device(wanted).type} if wanted is not None else set())


class Checked:
    """A function that is recorded on a GPU, called as `GraphedCallable` calls it, with the checks of this file."""

    def __init__(self, function: Callable[..., Any], recording: Callable[[], Any] = Recording) -> None:
        self._function, self._recording, self.calls = function, recording, 0

    def __call__(self, fixed: Sequence[Any], *inputs: torch.Tensor) -> Any:
        before = dict(_addresses(fixed))
        with self._recording():
            outputs = self._function(tuple(fixed), *inputs)
        assert dict(_addresses(fixed)) == before, "a tensor lies at another address now"
        self.calls += 1
        return outputs


def _addresses(tree: Any, path: str = "") -> Iterator[tuple[str, int]]:
    """Where every tensor below `tree` lies."""
    if isinstance(tree, torch.Tensor):
        yield path, tree.data_ptr()
    elif dataclasses.is_dataclass(tree):
        for field in dataclasses.fields(tree):
            yield from _addresses(getattr(tree, field.name), f"{path}.{field.name}")
    elif isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from _addresses(below, f"{path}[{name}]")
    elif isinstance(tree, list | tuple):
        for number, below in enumerate(tree):
            yield from _addresses(below, f"{path}[{number}]")


def iterations(spec: TrainingSpec, how_many: int = 2, whole_update: bool = False) -> dict[str, int]:
    """Iterations on random scenes, whose recorded functions are checked; returns how often each was called."""
    learner: Any = TorchLearner(spec, None)
    recorded = record(learner, lambda function, _: Checked(function), whole_update)
    state, policy_input = learner.load(arrays_of(spec)), seen_of(spec)
    flags = {name: np.zeros((spec.ppo.num_steps, spec.ppo.num_envs), np.float32) for name in flags_of(learner)}
    for iteration in range(1, how_many + 1):
        state = learner.begin_rollout(state, 1, iteration)
        with learner.acting_context():
            for t in range(spec.ppo.num_steps + 1):
                state, _ = learner.act(state, t, policy_input)
        state, _ = learner.update(state, flags, 1, iteration, 1e-3)
    return {name: function.calls for name, function in recorded.items()}


def flags_of(learner: Any) -> Sequence[str]:
    names: Sequence[str] = learner._update_functions.learning_arrays
    return names


@pytest.mark.parametrize("case", CASES)
def test_what_is_recorded_can_be_recorded(case: str) -> None:
    spec = problem_of(case)
    acts, gradient_steps = 2 * (spec.ppo.num_steps + 1), 2 * spec.ppo.update_epochs * spec.ppo.num_minibatches
    acting = {"_noise": 2, "_policy": acts}
    assert iterations(spec) == acting | {"targets": 2, "gradient_step": gradient_steps}
    assert iterations(spec, whole_update=True) == acting | {"_update": 2}


@pytest.mark.parametrize("precision", ["bfloat16", "float64"])
def test_other_precisions_and_masked_choices_can_be_recorded(precision: str) -> None:
    iterations(problem_of("nature_cnn", precision))
    iterations(masked_problem(precision))


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda found: found * found.sum().item(), "_local_scalar_dense: the host waits"),
        (lambda found: found * torch.tensor(1.0), "lift_fresh: numbers of the host"),
        (lambda found: found * found[found > -1].numel(), "index by flags: the host waits"),
    ],
    ids=["item", "tensor", "mask"],
)
def test_what_cannot_be_recorded_is_named(
    monkeypatch: pytest.MonkeyPatch, broken: Callable[[torch.Tensor], torch.Tensor], why: str
) -> None:
    """The check can fail: each of these is put into the clipping of the gradient."""
    clip_scale = ppo.clip_scale
    monkeypatch.setattr(ppo, "clip_scale", lambda *given: broken(clip_scale(*given).reshape(1)))
    with pytest.raises(AssertionError, match=why):
        iterations(problem_of("mlp, choices"))


def test_a_tensor_that_moves_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: Adam's mean in a new tensor."""
    from ppo_bench.runners.torch_adam import Adam

    step = Adam.step

    def moved(adam: Adam, *given: Any) -> None:
        step(adam, *given)
        object.__setattr__(adam, "mean", adam.mean.clone())

    monkeypatch.setattr(Adam, "step", moved)
    with pytest.raises(AssertionError, match="a tensor lies at another address now"):
        iterations(problem_of("mlp, choices"))
