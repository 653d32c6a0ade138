"""Conformance checker: tests whether a backend keeps the contract of ppo_bench/envs/base.py.

It plays the environments at random, checks every rule on every step, and returns findings with their evidence. Use it
on a backend of your own:

    findings = check_contract(lambda: MyVectorEnv(...))
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.common.errors import ConfigError
from ppo_bench.envs.base import GraphEnv, VectorEnv
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.random_play import Play, get_num_players, play_at_random, split_by_component
from ppo_bench.mathematics import noise

FEWEST_STEPS, MOST_STEPS = 1200, 4800
"""Bounds of the steps played in each environment. A time limit of 1,000 steps is reached even with the fewest. The
number is doubled until all environments together have `ENOUGH_RESETS` resets."""
ENOUGH_RESETS = 4


class Finding(NamedTuple):
    """The verdict on one rule of the contract: whether it is kept, and the evidence."""

    rule: str
    holds: bool
    evidence: str


def check_contract(make: Callable[[], VectorEnv | GraphEnv], num_steps: int | None = None) -> list[Finding]:
    """Findings for each rule, from four random plays of `num_steps` steps of the environments that `make` builds.

    Without `num_steps`, plays are long enough for `ENOUGH_RESETS` resets. The plays are: seed 1; seed 1 with other
    actions at resets; seed 1 with the environments in reverse order and other actions in one of them; seed 2 with the
    actions of the first play. Exceptions of the environment are passed on.
    """
    env = to_vector_env(make())
    if getattr(env, "same_step", False):
        env.close()
        raise ConfigError("check is for environments with next-step autoreset; these have same-step autoreset")
    players = get_num_players(env)
    seeds, others = (noise.env_seeds(seed, 0, env.num_envs) for seed in (1, 2))
    try:
        first = play_at_random(env, seeds, num_steps or FEWEST_STEPS)
        types = list(_shapes_and_types(first, env))
        if not all(finding.holds for finding in types):
            return types  # arrays of wrong shape or dtype cannot be tested further
        while not num_steps and first.resets.sum() < ENOUGH_RESETS and len(first.done) < MOST_STEPS:
            first = play_at_random(env, seeds, 2 * len(first.done))
        length = len(first.done)
        altered = play_at_random(env, seeds, length, alter_reset_actions=True)
        # A difference may be due to the other actions, or to plays that are not repeatable at all.
        repeats = _same_play(first, altered) or _same_play(first, play_at_random(env, seeds, length))
        mirrored = play_at_random(env, seeds, length, mirror=True).mirror(players)
        other = play_at_random(env, others, length)
    finally:
        env.close()
    return [
        *types,
        *_autoreset(first, altered, repeats),
        *_episodes(first),
        *_choices(first, env),
        *_turns(first, players),
        *_seeds(first, other, repeats, players),
        _independence(first, mirrored, repeats, players),
    ]


def _shapes_and_types(first: Play, env: VectorEnv) -> Iterator[Finding]:
    steps, space = first.steps, env.observation_space
    shape = (env.num_envs, *space.shape)
    yield Finding(
        "observations have the space's shape and dtype",
        first.obs.shape[1:] == shape and first.obs.dtype == space.dtype,
        f"{first.obs.shape[1:]} {first.obs.dtype}, the space says {shape} {space.dtype}",
    )
    finite = bool(np.isfinite(first.obs).all() and np.isfinite(steps.raw_reward).all())
    yield Finding("observations and rewards are finite", finite, "all of them" if finite else "some are not")
    fields = steps._asdict().items()
    dtypes = {name: array.dtype for name, array in fields if name not in ("obs", "action_mask") and array is not None}
    expected = {name: np.dtype(np.float32 if "reward" in name else bool) for name in dtypes}
    yield Finding(
        "rewards are float32 [N], flags bool [N]",
        dtypes == expected and all(getattr(steps, name).shape[1:] == shape[:1] for name in dtypes),
        ", ".join(f"{name} {dtype} {list(getattr(steps, name).shape[1:])}" for name, dtype in dtypes.items()),
    )


def _same_play(a: Play, b: Play) -> bool:
    pairs: Any = zip((a.obs, *a.steps), (b.obs, *b.steps), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def _autoreset(first: Play, altered: Play, repeats: bool) -> Iterator[Finding]:
    """Next-step autoreset: a done step shows the final observation; the next step has reward 0, ignores its action and
    shows the first observation of the new episode."""
    steps = first.steps
    done, resets = first.done, first.resets
    count = int(resets.sum())
    yield Finding(
        "episodes end within the play", count > 0, f"{int(done.sum())} ends; play more steps if there are none"
    )
    paid = int((resets & ((steps.reward != 0) | (steps.raw_reward != 0))).sum())
    heeded = repeats and not _same_play(first, altered)  # undecidable if plays are not repeatable
    places = np.argwhere(resets)
    repeats_obs = np.array([np.array_equal(first.obs[t, env], first.obs[t + 1, env]) for t, env in places], bool)
    is_truncated = np.array([steps.truncated[t - 1, env] for t, env in places], bool)
    # A time limit alone may be where it is wrong. An observation may be the same by chance.
    by_kind = [repeats_obs[is_truncated == kind] for kind in (False, True)]
    where_else = "and where a row passes " if steps.policy_mask is not None else ""
    same_step = "; the environment resets in the same step, next-step autoreset is asked for"
    yield Finding(
        "the step after an end has reward 0",
        paid == 0,
        f"{paid} of {count} such steps have another" + (same_step if paid else ""),
    )
    yield Finding(
        "the step after an end ignores its action",
        not heeded,
        f"other actions there {where_else}{'change' if heeded else 'do not change'} the play"
        + (same_step if heeded else ""),
    )
    yield Finding(
        "an end shows the episode's last observation, not the next one's first",
        all(2 * kind.sum() <= len(kind) for kind in by_kind),
        f"{int((~repeats_obs).sum())} of {count} times the step after it shows another",
    )
    ended = int((resets & done).sum())
    yield Finding("the step after an end does not end", ended == 0, f"{ended} of {count} such steps do")


def _episodes(first: Play) -> Iterator[Finding]:
    steps, done = first.steps, first.done
    yield Finding(
        "an episode that is over is done",
        not (steps.episode_over & ~done).any(),
        f"{int(steps.episode_over.sum())} over, {int(done.sum())} done (a lost life is done and not over)",
    )
    cut = steps.truncated & ~steps.terminated
    yield Finding(
        "a truncated episode is over",
        not (cut & ~steps.episode_over).any(),
        f"{int(cut.sum())} truncated at a time limit",
    )
    signs = np.array_equal(steps.reward, steps.raw_reward) or np.array_equal(steps.reward, np.sign(steps.raw_reward))
    yield Finding(
        "the reward is the game's own or its sign",
        signs,
        f"rewards {steps.reward.min():g} to {steps.reward.max():g}, "
        f"raw {steps.raw_reward.min():g} to {steps.raw_reward.max():g}",
    )


def _choices(first: Play, env: VectorEnv) -> Iterator[Finding]:
    """Findings on masks of legal choices, for environments that have them."""
    action_mask, masks = first.steps.action_mask, env.masks_actions
    if action_mask is None and not masks:
        return
    if action_mask is None or not masks or action_mask.dtype != bool:
        kind = "none" if action_mask is None else f"{action_mask.dtype} {list(action_mask.shape[1:])}"
        yield Finding("masks of what is legal are bool, of environments that announce them", False, f"{masks}: {kind}")
        return
    rows = action_mask.reshape(-1, action_mask.shape[-1])
    none = int((~np.stack([part.any(1) for part in split_by_component(env.action_space, rows)], 1).all(1)).sum())
    yield Finding(
        "one choice of each component is legal", none == 0, f"{none} of {len(rows)} rows leave none of a component"
    )


def _turns(first: Play, players: int) -> Iterator[Finding]:
    """Findings on games of several players, whose rows are adjacent."""
    steps = first.steps
    if players == 1:
        return
    length, rows = first.done.shape

    def games(flags: np.ndarray) -> np.ndarray:
        return flags.reshape(length, rows // players, players)

    flags = [games(flag) for flag in (steps.terminated, steps.truncated, steps.episode_over)]
    ends = sum(int(flag.any(-1).sum()) for flag in flags)
    apart = sum(int((flag.any(-1) & ~flag.all(-1)).sum()) for flag in flags)
    yield Finding("the rows of a game end together", apart == 0, f"{apart} of {ends} flags are of some rows alone")
    if steps.policy_mask is None:
        yield Finding("a row of a game is to move", True, "all of them, in every step")
        return
    acting = games(steps.policy_mask).sum(-1)
    expected = np.where(games(first.done).any(-1), 0, 1)
    wrong = int((acting != expected).sum())
    yield Finding(
        "one row of a game is to move, and none when it is over",
        wrong == 0,
        f"{wrong} of {acting.size} times it is otherwise",
    )
    free = np.ones_like(first.done) if steps.action_mask is None else steps.action_mask.all(-1)
    bound = int((~steps.policy_mask & ~free).sum())
    yield Finding("a row that passes may choose anything", bound == 0, f"{bound} times it may not")


def _seeds(first: Play, other: Play, repeats: bool, players: int) -> Iterator[Finding]:
    evidence = "two plays are the same bit for bit" if repeats else "two plays differ"
    yield Finding("a seed determines everything", repeats, evidence)
    num_envs = first.obs.shape[1]
    pairs = [(i, j) for i in range(num_envs) for j in range(i // players * players)]  # of different games
    twins = [(i, j) for i, j in pairs if np.array_equal(first.obs[:, i], first.obs[:, j])]
    yield Finding("environments differ from each other", not twins, f"identical pairs: {twins or 'none'}")
    differs = not np.array_equal(first.obs, other.obs)
    same = "observations are identical" + (": a game without chance" if players > 1 else "")
    yield Finding("another seed plays otherwise", differs or players > 1, "it does" if differs else same)


def _independence(first: Play, mirrored: Play, repeats: bool, players: int) -> Finding:
    """Finding on independence. `mirrored` was played in reverse order with other actions in environment 0; its arrays
    are in the order of `first`."""
    rule = "an environment follows from its own seed and actions alone"
    if not repeats:
        return Finding(rule, True, "of a play that never repeats it cannot be told")
    changed = [
        env for env in range(players, first.obs.shape[1]) if not np.array_equal(first.obs[:, env], mirrored.obs[:, env])
    ]
    evidence = "in another row, with other actions around it, "
    return Finding(rule, not changed, evidence + (f"environments {changed} differ" if changed else "each is the same"))
