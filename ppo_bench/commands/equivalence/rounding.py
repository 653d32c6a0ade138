"""Discrete actions that depend on rounding: their scores tie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppo_bench.commands.equivalence.differences import IterationOutcome
from ppo_bench.envs.base import PolicyInput
from ppo_bench.mathematics import noise
from ppo_bench.mathematics.arrays import Tree, select_prefix
from ppo_bench.networks.network import mask_logits
from ppo_bench.runners.base import TrainingSpec


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


def count_tied_actions(leader: IterationOutcome, other: IterationOutcome, found: Sequence[Tie]) -> int:
    """Number of actions that differ in ties alone, since one component may tie where another truly differs."""
    components = (leader.actions != other.actions).reshape(*leader.actions.shape[:2], -1).sum(-1)
    tied = Counter((tie.step, tie.env) for tie in found)
    return sum(count == int(components[place]) for place, count in tied.items())
