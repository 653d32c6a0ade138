"""Reasons for differences between frameworks: actions that depend on rounding, and iterations that amplify it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.equivalence.differences import IterationOutcome, parameter_distance
from ppo_bench.commands.equivalence.processes import FrameworkProcess
from ppo_bench.envs.base import EnvStep, PolicyInput
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Arrays, Tree, select_prefix
from ppo_bench.networks.network import mask_logits
from ppo_bench.runners.base import TrainingSpec

TRIES = 16
ROUNDING_UNITS = 8.0


class Tie(NamedTuple):
    """A discrete action that two frameworks chose differently, where the scores differ only by rounding."""

    iteration: int
    step: int
    """Step of the environments within the iteration."""
    env: int
    leader_action: int
    other_action: int
    margin: float
    """Score (logit plus Gumbel noise) of the leader's choice minus that of the other, in float64."""
    score: float
    """Score of the leader's choice."""


def ties(
    spec: TrainingSpec,
    seen: Sequence[PolicyInput],
    leader: IterationOutcome,
    other: IterationOutcome,
    iteration: int,
    tolerance: float,
) -> list[Tie]:
    """The differing discrete actions whose scores tie within `tolerance`; `seen` holds the network's inputs by step."""
    if leader.actions.dtype.kind not in "iu":
        return []
    network, one = spec.network, np.ones(1, np.int32)
    logits = _logits(spec, seen, leader)
    found = []
    for t, n, *component in np.argwhere(leader.actions != other.actions):
        words = noise.action_words(
            np,
            one * int(leader.before["seed"]),
            one * iteration,
            one * int(t),
            one * int(n),
            np.arange(network.actions.action_dim, dtype=np.int32),
        )
        start = sum(network.actions.choices[: component[0]]) if component else 0
        scores = (logits[t, n] + noise.gumbel(np, words, np.float64)[0, 0])[start:]
        mine, theirs = (int(o.actions[(t, n, *component)]) for o in (leader, other))
        margin = float(scores[mine] - scores[theirs])
        if abs(margin) <= tolerance * max(1.0, abs(scores[mine]), abs(scores[theirs])):
            found.append(Tie(iteration, int(t), int(n), mine, theirs, margin, float(scores[mine])))
    return found


def _logits(spec: TrainingSpec, seen: Sequence[PolicyInput], leader: IterationOutcome) -> np.ndarray:
    """The leader's logits `[T, N, A]` in float64, from its state before the iteration."""
    from ppo_bench.runners.torch_policy import policy

    act = policy(spec.network, leader.before, "float64", "cpu", None)
    carry: Tree = {name: x.astype(np.float64) for name, x in select_prefix("envs.carry", leader.before).items()}
    logits = []
    for step in seen:
        policy_outputs, _, carry = act(step.obs, step.episode_start, carry)
        logits.append(mask_logits(np, policy_outputs, step.action_mask)[0])
    return np.stack(logits)


def tied_actions(leader: IterationOutcome, other: IterationOutcome, found: Sequence[Tie]) -> int:
    """Number of actions that differ in ties alone, since one component may tie where another truly differs."""
    components = (leader.actions != other.actions).reshape(*leader.actions.shape[:2], -1).sum(-1)
    tied = Counter((tie.step, tie.env) for tie in found)
    return sum(count == int(components[place]) for place, count in tied.items())


class Sensitivity(NamedTuple):
    """Distance between repetitions of the leader's iteration whose inputs differ by rounding."""

    unchanged: float
    """Distance of the parameters with unchanged inputs: 0 if the framework is deterministic."""
    largest: float
    """The largest distance with changed inputs."""
    over: int
    """Number of tries with a distance above the tolerance."""
    tries: int


def sensitivity(twin: FrameworkProcess, leader: IterationOutcome, tolerance: float, dtype: str) -> Sensitivity:
    """Repeat the leader's iteration with parameters and observations changed at random by rounding of `dtype`.

    The changes are up to 8 units in the last place, the difference between two orders of summing 64 products. PPO's
    clipping is not smooth: at a bound, rounding decides whether a transition has a gradient. An iteration in which that
    happens amplifies rounding by orders of magnitude, in any framework and in the leader itself.
    """
    rng = np.random.default_rng(0)
    size = ROUNDING_UNITS * np.finfo(dtype).eps
    assert leader.steps is not None

    def distance(before: Arrays, steps: EnvStep) -> float:
        return parameter_distance(leader.after, twin.follow(before, steps).after)

    def changed(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f":
            return array
        return (array * (1.0 + rng.uniform(-size, size, array.shape))).astype(array.dtype)

    distances = []
    for _ in range(TRIES):
        inputs = {n: changed(a) for n, a in leader.before.items() if n.startswith("params.") or n == "envs.obs"}
        distances.append(distance(leader.before | inputs, leader.steps._replace(obs=changed(leader.steps.obs))))
    unchanged, over = distance(leader.before, leader.steps), sum(d > tolerance for d in distances)
    return Sensitivity(unchanged, max(distances), over, TRIES)
