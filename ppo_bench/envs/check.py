"""Does a backend keep the contract of ppo_bench/envs/base.py? A list of findings, each with the evidence.

The environments are played at random; every rule is checked on every step. Use it on a backend of your own:

    findings = check_contract(lambda: MyVectorEnv(...), num_steps=1_200)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from ppo_bench import noise
from ppo_bench.envs.base import GraphEnv, Step, VectorEnv
from ppo_bench.envs.host import on_host


class Finding(NamedTuple):
    """One rule of the contract: kept or not, and what was seen."""

    rule: str
    kept: bool
    evidence: str


class Play(NamedTuple):
    """What random play saw: observations `[T + 1, N, ...]`, and the steps' other arrays `[T, N]`."""

    obs: np.ndarray
    steps: Step


def check_contract(make: Callable[[], VectorEnv | GraphEnv], num_steps: int) -> list[Finding]:
    """Play `num_steps` random steps four times and judge each rule.

    Seed 1 is played twice, and once more with other actions at resets; seed 2 once, with the actions of seed 1. Raises
    what the environment does.
    """
    env = on_host(make())
    try:
        first, again, other = (_play(env, seed, num_steps) for seed in (1, 1, 2))
        altered = _play(env, 1, num_steps, alter_reset_actions=True)
        types = list(_shapes_and_types(first, env))
    finally:
        env.close()
    if not all(finding.kept for finding in types):
        return types  # the other rules could not even be put to arrays like these
    repeats = _same_play(first, again)
    return [*types, *_autoreset(first, altered, repeats), *_episodes(first), *_seeds(first, other, repeats)]


def _play(env: VectorEnv, seed: int, num_steps: int, alter_reset_actions: bool = False) -> Play:
    """Random play from `seed`; the actions are always the same, but at resets if they are to be altered there."""
    rng, other_rng = np.random.default_rng(1), np.random.default_rng(2)
    observations = [env.reset(noise.env_seeds(seed, 0, env.num_envs)).copy()]
    steps: list[Step] = []
    for _ in range(num_steps):
        actions = _random_actions(env, rng)
        if alter_reset_actions and steps:
            resets = steps[-1].terminated | steps[-1].truncated
            actions[resets] = _random_actions(env, other_rng)[resets]
        step = Step(*(array.copy() for array in env.step(actions)))
        observations.append(step.obs)
        steps.append(step._replace(obs=np.empty(0)))
    columns = zip(*steps, strict=True)
    return Play(np.stack(observations), Step(*(np.stack(column) for column in columns)))


def _random_actions(env: VectorEnv, rng: np.random.Generator) -> np.ndarray:
    from gymnasium import spaces

    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, int(space.n), env.num_envs)
    low, high = np.maximum(space.low, -1.0), np.minimum(space.high, 1.0)
    return rng.uniform(low, high, (env.num_envs, *space.shape)).astype(np.float32)


def _shapes_and_types(play: Play, env: VectorEnv) -> Iterator[Finding]:
    steps, space = play.steps, env.observation_space
    shape = (env.num_envs, *space.shape)
    yield Finding(
        "observations have the space's shape and dtype",
        play.obs.shape[1:] == shape and play.obs.dtype == space.dtype,
        f"{play.obs.shape[1:]} {play.obs.dtype}, the space says {shape} {space.dtype}",
    )
    finite = bool(np.isfinite(play.obs).all() and np.isfinite(steps.raw_reward).all())
    yield Finding("observations and rewards are finite", finite, "all of them" if finite else "some are not")
    dtypes = {name: getattr(steps, name).dtype for name in Step._fields[1:]}
    expected = {name: np.dtype(np.float32 if "reward" in name else bool) for name in dtypes}
    yield Finding(
        "rewards are float32 [N], flags bool [N]",
        dtypes == expected and all(getattr(steps, name).shape[1:] == shape[:1] for name in dtypes),
        ", ".join(f"{name} {dtype} {list(getattr(steps, name).shape[1:])}" for name, dtype in dtypes.items()),
    )


def _same_play(a: Play, b: Play) -> bool:
    return all(np.array_equal(x, y) for x, y in zip((a.obs, *a.steps), (b.obs, *b.steps), strict=True))


def _autoreset(play: Play, altered: Play, repeats: bool) -> Iterator[Finding]:
    """NEXT_STEP: the final observation first, then a step with reward 0 that fetches the new episode's first one."""
    steps = play.steps
    done = steps.terminated | steps.truncated
    resets = np.zeros_like(done)
    resets[1:] = done[:-1]
    count = int(resets.sum())
    yield Finding(
        "episodes end within the play", count > 0, f"{int(done.sum())} ends; play more steps if there are none"
    )
    paid = int((resets & ((steps.reward != 0) | (steps.raw_reward != 0))).sum())
    heeded = repeats and not _same_play(play, altered)  # of a play that never repeats it cannot be told
    shown_twice = sum(np.array_equal(play.obs[t, env], play.obs[t + 1, env]) for t, env in np.argwhere(resets))
    same_step = "; the environment resets in the same step, next-step autoreset is asked for"
    yield Finding(
        "the step after an end has reward 0",
        paid == 0,
        f"{paid} of {count} such steps have another" + (same_step if paid else ""),
    )
    yield Finding(
        "the step after an end ignores its action",
        not heeded,
        f"other actions there {'change' if heeded else 'do not change'} the play" + (same_step if heeded else ""),
    )
    yield Finding(
        "an end shows the episode's last observation, not the next one's first",
        2 * shown_twice <= count,
        f"{count - shown_twice} of {count} times the step after it shows another",
    )
    ended = int((resets & done).sum())
    yield Finding("the step after an end does not end", ended == 0, f"{ended} of {count} such steps do")


def _episodes(play: Play) -> Iterator[Finding]:
    steps = play.steps
    done = steps.terminated | steps.truncated
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


def _seeds(first: Play, other: Play, repeats: bool) -> Iterator[Finding]:
    evidence = "two plays are the same bit for bit" if repeats else "two plays differ"
    yield Finding("a seed determines everything", repeats, evidence)
    num_envs = first.obs.shape[1]
    twins = [(i, j) for i in range(num_envs) for j in range(i) if np.array_equal(first.obs[:, i], first.obs[:, j])]
    yield Finding("environments differ from each other", not twins, f"identical pairs: {twins or 'none'}")
    differs = not np.array_equal(first.obs, other.obs)
    yield Finding("another seed plays otherwise", differs, "it does" if differs else "observations are identical")
