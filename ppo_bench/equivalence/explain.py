"""Why frameworks differ where they do: actions that hang on rounding, and iterations that amplify it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ppo_bench import noise
from ppo_bench.config import Config
from ppo_bench.equivalence.differences import Outcome, differing_actions, parameter_distance
from ppo_bench.equivalence.processes import Follower
from ppo_bench.runners.base import Arrays

TRIES = 16


class Tie(NamedTuple):
    """A discrete action that two frameworks chose differently, between scores that rounding alone tells apart."""

    iteration: int
    step: int
    """Step of the environments within the iteration."""
    env: int
    leader_action: int
    other_action: int
    margin: float
    """Score (logit plus Gumbel noise) of the leader's choice less that of the other, in float64."""
    score: float
    """Of the leader's choice."""


def ties(
    config: Config, leader: Outcome, other: Outcome, observations: np.ndarray, iteration: int, tolerance: float
) -> list[Tie]:
    """The differing discrete actions whose scores tie within `tolerance`.

    `observations [T, N, ...]` are those that the network took.
    """
    if leader.actions.dtype.kind not in "iu":
        return []
    import torch

    from ppo_bench.networks import torch as networks

    env = config.backend.make(config.task)
    network = config.network.build(env.observation_space, env.action_space)
    env.close()
    params = {p.name: torch.from_numpy(leader.before[f"params.{p.name}"]).double() for p in network.parameters}
    one = np.ones(1, np.int32)
    found = []
    for t, n in np.argwhere(differing_actions(leader, other, 0.0)):
        (logits,), _, _ = networks.apply(
            network, params, torch.from_numpy(observations[t, n][None]), (), None, torch.double
        )
        words = noise.action_words(
            np,
            one * int(leader.before["seed"]),
            one * iteration,
            one * int(t),
            one * int(n),
            np.arange(network.num_actions, dtype=np.int32),
        )
        scores = logits.numpy()[0] + noise.gumbel(np, words, np.float64)[0, 0]
        mine, theirs = int(leader.actions[t, n]), int(other.actions[t, n])
        margin = float(scores[mine] - scores[theirs])
        if abs(margin) <= tolerance * max(1.0, float(np.abs(scores).max())):
            found.append(Tie(iteration, int(t), int(n), mine, theirs, margin, float(scores[mine])))
    return found


class Sensitivity(NamedTuple):
    """How far an iteration of the leader's lands from itself when its parameters are changed by rounding."""

    unchanged: float
    """Distance of the parameters without any change: 0 if the framework repeats itself."""
    largest: float
    """The largest of several tries."""
    over: int
    """Tries that landed beyond the tolerance."""
    tries: int


def sensitivity(twin: Follower, leader: Outcome, tolerance: float) -> Sensitivity:
    """Replay the leader's iteration from its parameters, each changed at random by up to two units in the last place.

    PPO's clipping is not smooth: at a bound, rounding decides whether a transition has a gradient. An iteration in
    which that happens amplifies rounding by orders of magnitude, in any framework and in the leader itself.
    """
    rng = np.random.default_rng(0)

    def distance(before: Arrays) -> float:
        return parameter_distance(leader.after, twin.follow(before, leader.steps).after)

    def perturbed(array: np.ndarray) -> np.ndarray:
        size = 2.0 * np.finfo(array.dtype).eps
        return (array * (1.0 + rng.uniform(-size, size, array.shape))).astype(array.dtype)

    def changed() -> Arrays:
        return {name: perturbed(a) if name.startswith("params.") else a for name, a in leader.before.items()}

    distances = [distance(changed()) for _ in range(TRIES)]
    over = sum(d > tolerance for d in distances)
    return Sensitivity(distance(leader.before), max(distances), over, TRIES)
