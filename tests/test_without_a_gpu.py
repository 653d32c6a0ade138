"""GPU paths on a machine that has none: PyTorch's on tensors without data, JAX's programs lowered for each platform.

PyTorch's fake tensors say that they are on a GPU and refuse operations between two devices, of wrong types and of wrong
shapes; JAX lowers for platforms that are not there.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import pytest
import torch
from torch._dynamo import trace_rules
from torch._subclasses.fake_tensor import FakeTensorMode

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import Seen
from ppo_bench.mathematics import ppo
from ppo_bench.mathematics.arrays import Arrays, Kind, filled, of_kinds
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks import jax as jax_networks
from ppo_bench.networks import network
from ppo_bench.runners import program, torch_adam, torch_device
from ppo_bench.runners import torch as torch_runner
from ppo_bench.runners.base import Problem
from ppo_bench.runners.declared import declared_arrays, initial_arrays
from ppo_bench.runners.jax import JaxLearner
from ppo_bench.runners.jax_learning import Learning
from ppo_bench.runners.program_runner import ProgramRunner
from ppo_bench.runners.torch import TorchLearner
from tests.runners import problem_for
from tests.scenes import RandomScenes
from tests.seams import LEVELLED, SMALL

pytestmark = pytest.mark.slow
RND = ["algorithm=rnd", "algorithm.features=8", "algorithm.warm_up_iterations=1"]
CASES: dict[str, tuple[bool, bool, list[str]]] = {
    "mlp, choices": (False, False, ["network=mlp"]),
    "mlp, floats": (False, True, ["network=mlp", "ppo=continuous", "ppo.num_minibatches=2", "ppo.num_steps=8"]),
    "wide_mlp": (False, False, ["network=wide_mlp"]),
    "nature_cnn": (True, False, ["network=nature_cnn"]),
    "nature_cnn, undivided planes": (True, False, ["network=nature_cnn", "network.undivided_channels=2"]),
    "impala_cnn": (True, False, ["network=impala_cnn"]),
    "lstm": (False, False, ["network=lstm"]),
    "gru": (False, False, ["network=gru"]),
    "lstm_cnn": (True, False, ["network=lstm_cnn"]),
    "trxl": (False, False, ["network=trxl", "network.memory=4", "network.dim=16", "network.heads=2"]),
    "rnd": (False, False, ["network=mlp", *RND]),
    "rnd_cnn": (True, False, ["network=rnd_cnn", *RND]),
    "an algorithm of one's own": (False, False, ["network=mlp", *LEVELLED]),
}
"""Of each network and algorithm: whether observations are images, whether actions are floats, and the words."""


class MaskedScenes(RandomScenes):
    """Games of two rows that say which choices are legal."""

    masks_actions, players = True, 2

    def seen(self) -> Seen:
        legal = np.ones((self.num_envs, 3), bool)
        legal[:, 1] = False
        return Seen(self.reset([0]).obs, np.ones(self.num_envs, bool), legal, np.ones(self.num_envs, bool))


def problem_of(case: str, precision: str = "float32") -> Problem:
    pixels, continuous, words = CASES[case]
    env = RandomScenes(4, pixels, continuous)
    if pixels:
        env.observation_space = type(env.observation_space)(0, 255, (4, 84, 84), np.uint8)
    return problem_for(env, 2, [*SMALL, *words, f"precision={precision}"])


def of_two_sides(precision: str = "float32") -> Problem:
    words = [*SMALL, "network=mlp", "env.players=2", "opponents=past", "opponents.every_iterations=1"]
    return problem_for(MaskedScenes(4, False, False), 2, [*words, f"precision={precision}"])


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def reads_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read back from tensors without data is zeros."""
    types: Any = {torch.int64: np.int64, torch.bool: np.bool_, torch.float64: np.float64}

    def zeros(x: torch.Tensor) -> np.ndarray:
        return np.zeros(tuple(x.shape), types.get(x.dtype, np.float32))

    monkeypatch.setattr(torch.Tensor, "numpy", _from_the_host_alone(zeros))
    monkeypatch.setattr(torch.Tensor, "tolist", lambda x: zeros(x).tolist())
    monkeypatch.setattr(torch.Tensor, "__float__", lambda x: 0.0)
    monkeypatch.setattr(torch_runner, "set_threads", lambda *_: None)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """A GPU on which tensors have no data, and no gradients: PyTorch's tape wants a device's streams."""
    device = torch.device("cuda", 0)
    trace_rules.get_torch_obj_rule_map()  # learnt once: not from the functions that are replaced
    monkeypatch.setattr(torch_runner, "pick_device", lambda *_: device)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "none")
    reads_zeros(monkeypatch)
    # The three that ask for a device's library although tensors are fake.
    monkeypatch.setattr(torch.Tensor, "copy_", _copied)
    monkeypatch.setattr(torch, "asarray", lambda x, dtype: x.to(dtype))
    monkeypatch.setattr(torch.Tensor, "__getitem__", _part)
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield device
    torch_device.set_precision(PRECISIONS["float32"])


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[torch.device]:
    """PyTorch's device without data, which has gradients: what lies on the host cannot be computed with there."""
    device = torch.device("meta")
    monkeypatch.setattr(torch_runner, "pick_device", lambda *_: device)
    reads_zeros(monkeypatch)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: torch.zeros(x.shape, dtype=x.dtype))
    monkeypatch.setattr(torch_adam, "adam", _product)  # whose kernel there is none of for this device
    yield device
    torch_device.set_precision(PRECISIONS["float32"])


def _product(
    params: Any, gradients: Any, means: Any, variances: Any, *rest: Any, lr: torch.Tensor, **more: Any
) -> None:
    """An operation on all that Adam's is on."""
    params[0].add_(gradients[0] * means[0] * variances[0] * lr)


def _copied(x: torch.Tensor, other: torch.Tensor) -> Any:
    return torch.ops.aten.copy_(x, other)


def _part(x: torch.Tensor, index: Any) -> torch.Tensor:
    """`x[index]` by operations that fake tensors dispatch."""
    places = list(index if isinstance(index, tuple) else (index,))
    if Ellipsis in places:
        at = places.index(Ellipsis)
        places[at : at + 1] = [slice(None)] * (x.dim() - sum(place is not None for place in places) + 1)
    axis = 0
    for place in places:
        if place is None:
            x, axis = x.unsqueeze(axis), axis + 1
        elif isinstance(place, slice):
            x, axis = torch.ops.aten.slice(x, axis, place.start, place.stop, place.step or 1), axis + 1
        elif isinstance(place, int):
            x = x.select(axis, place)
        else:
            x, axis = x.index_select(axis, place), axis + 1
    return x


def _from_the_host_alone(zeros: Any) -> Any:
    def numpy(x: torch.Tensor) -> np.ndarray:
        assert x.device.type == "cpu", "an array of NumPy's is asked for of a tensor on the GPU"
        array: np.ndarray = zeros(x)
        return array

    return numpy


def iteration(problem: Problem, device: torch.device) -> None:
    """One iteration of `torch_eager`'s learner, on random scenes; without an update where there are no gradients."""
    learner = TorchLearner(problem, None)
    env: Any = problem.env
    seen = env.seen() if isinstance(env, MaskedScenes) else Seen(env.reset([0]).obs)
    rows = problem.ppo.num_envs
    seen = seen._replace(obs=problem.network.arrange(seen.obs), start=np.ones(rows, bool))
    state = learner.begin(learner.load(arrays_of(problem)), 1, 1)
    with learner.acting():
        for t in range(problem.ppo.num_steps + 1):
            state, actions = learner.act(state, t, seen)
            assert len(actions) == rows
    shape = (problem.ppo.num_steps, rows)
    flags = {name: np.zeros(shape, np.float32) for name in (*learner._computation.flags,)}
    if problem.algorithm.warm_up:
        state = learner.warmed(state, flags)
    state, batch, _ = learner.targets(state, flags, 1, 1)
    if device.type != "cuda":
        state, _ = learner.update(state, batch, 1, 1, 1e-3)
    learner.export(learner.restart(state))
    for tensor in (state.learnt, state.adam.mean, *state.memory.values(), *state.statistics.values()):
        assert tensor.device.type == device.type


def arrays_of(problem: Problem) -> Arrays:
    return initial_arrays(problem, 1) | filled(of_kinds(declared_arrays(problem), Kind.ENVIRONMENT))


@pytest.mark.parametrize("case", CASES)
def test_acting_and_targets_stay_on_the_gpu(case: str, gpu: torch.device) -> None:
    iteration(problem_of(case), gpu)


@pytest.mark.parametrize("case", CASES)
def test_a_whole_iteration_stays_on_its_device(case: str, elsewhere: torch.device) -> None:
    iteration(problem_of(case), elsewhere)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_and_two_sides_stay_on_the_gpu(precision: str, gpu: torch.device) -> None:
    iteration(problem_of("nature_cnn", precision), gpu)
    iteration(of_two_sides(precision), gpu)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_precision_and_two_sides_stay_on_their_device(precision: str, elsewhere: torch.device) -> None:
    iteration(problem_of("nature_cnn", precision), elsewhere)
    iteration(of_two_sides(precision), elsewhere)


def test_a_tensor_made_on_the_host_in_the_update_is_refused(
    elsewhere: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check can fail: a gradient times a vector that lies on the host."""
    clip_scale = ppo.clip_scale
    monkeypatch.setattr(ppo, "clip_scale", lambda *given: clip_scale(*given) * torch.ones(1))
    with pytest.raises(RuntimeError, match=r"meta.*cpu|cpu.*meta"):
        iteration(problem_of("mlp, choices"), elsewhere)


def test_a_tensor_made_on_the_host_while_acting_is_refused(gpu: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: logits times a vector that lies on the host."""
    masked = network.masked
    monkeypatch.setattr(network, "masked", lambda xp, head, legal: (masked(xp, head, legal)[0] * torch.ones(3),))
    with pytest.raises(RuntimeError, match=r"cuda.*cpu|cpu.*cuda"):
        iteration(problem_of("mlp, choices"), gpu)


# --- JAX --------------------------------------------------------------------------------------------------------------

PLATFORMS = ("cuda", "rocm", "tpu")


@pytest.fixture
def no_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks are built as they are where there is an accelerator."""
    monkeypatch.setattr(jax_networks, "_on_cpu", lambda: False)


def lowered(function: Any, *arguments: Any) -> None:
    """Raises where a platform lacks an operation."""
    jax.jit(function).trace(*arguments).lower(lowering_platforms=PLATFORMS)


@pytest.mark.parametrize("case", CASES)
def test_programs_of_environments_on_the_host_are_lowered_for_every_platform(case: str, no_cpu: None) -> None:
    lower_host(problem_of(case))


@pytest.mark.parametrize("precision", ["bfloat16", "float64"])
def test_other_precisions_and_two_sides_are_lowered(precision: str, no_cpu: None) -> None:
    lower_host(problem_of("nature_cnn", precision))
    lower_host(of_two_sides(precision))


def lower_host(problem: Problem) -> None:
    learner = JaxLearner(problem)
    learning, rows = learner._learning, problem.ppo.num_envs
    state = learner.load(arrays_of(problem))
    start = np.ones(rows, bool) if state.carry else None
    legal = np.ones((rows, problem.network.actions.lanes), bool) if problem.env.masks_actions else None
    obs = np.zeros((rows, *problem.network.input_shape), np.uint8 if problem.network.uint8 else np.float32)
    seed: Any = np.int32(1)
    number: Any = np.int32(1)
    noise = learning.action_noise(seed, number)
    opponent = learning.opponent(state.learnt.pool, seed, number)
    seen = Seen(obs, legal=legal, start=start)
    lowered(learning.action_noise, seed, number)
    lowered(learning.act, state.arrays, opponent, state.memory, state.carry, noise, np.int32(0), seen)
    flags = {name: np.zeros((problem.ppo.num_steps, rows), np.float32) for name in learner._flags}
    lowered(learner._targets_and_update, state.learnt, state.memory, flags, seed, number, np.float32(1e-3))


@pytest.mark.parametrize(
    "words",
    [["env=cartpole"], ["env=minatar_breakout"], ["env=connect_four", "opponents=past"], ["env=deep_sea"]],
    ids=" ".join,
)
def test_programs_with_environments_in_them_are_lowered(words: list[str], no_cpu: None) -> None:
    own = ["framework=jax_xla", "backend=jax", "ppo.num_envs=4", "ppo.num_steps=4", "ppo.num_minibatches=2"]
    config = load_config([*words, *own])
    env: Any = config.backend.make(config.task)
    runner = ProgramRunner(config.problem(env), env, 1)
    learning: Learning = runner.learning
    state = runner.init(1)
    whole = functools.partial(program.iterate, learning, state.env_step)
    lowered(whole, state.learnt, state.envs, np.int32(1), np.int32(1), np.array(1e-3, learning.dtype))
    runner.close()
    assert math.isfinite(learning.ppo.learning_rate)
