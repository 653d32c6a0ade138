"""`env.atari.baselines=true`: frames and resets of OpenAI Baselines' wrappers, as CleanRL's ppo_atari.py has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import ale_py
import cv2
import gymnasium
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from ppo_bench.configuration.load import load_config
from ppo_bench.envs import atari_baselines
from ppo_bench.envs.atari import FIRE, NOOP, NOOP_MAX
from ppo_bench.envs.atari_baselines import make_atari_baselines
from ppo_bench.envs.base import Atari, Task
from ppo_bench.envs.gymnasium import GymnasiumEnv
from tests.ale import ale, copy
from tests.test_envs import BACKENDS, refusal

gymnasium.register_envs(ale_py)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the v4 games are meant

RULES = Atari(episodic_life=True, reward_clip=True, baselines=True)
AFTER_FIRE = 2
STEPS_OF_FIRE = [FIRE] * 4 + [AFTER_FIRE] * 4


def breakout(num_envs: int = 1, **options: Any) -> GymnasiumEnv:
    return GymnasiumEnv(Task("breakout", "BreakoutNoFrameskip-v4", num_envs, RULES, **options), "sync")


def game(env: GymnasiumEnv) -> Any:
    return env._envs._envs.envs[0]


def raw(env_id: str, seed: int) -> tuple[gymnasium.Env[Any, Any], int]:
    """The game itself, reset by `seed`, and the number of no-ops that its generator draws then."""
    env = gymnasium.make(env_id)
    env.reset(seed=seed)
    return env, int(env.unwrapped.np_random.integers(1, NOOP_MAX + 1))


def seen_after(env: gymnasium.Env[Any, Any], actions: Iterable[int], pooled: int = 2) -> np.ndarray:
    """The frame after single-frame `actions`: colours pooled over the last ones, scaled, then made grey."""
    frames = [env.step(action)[0] for action in actions][-pooled:]
    small = cv2.resize(np.max(frames, 0), (84, 84), interpolation=cv2.INTER_AREA)
    frame: np.ndarray = (small * [0.2125, 0.7154, 0.0721]).sum(-1).astype(np.uint8)
    return frame


@pytest.mark.parametrize("seed", range(3))
def test_a_game_begins_with_noops_a_step_of_fire_and_one_of_the_next_action(seed: int) -> None:
    env, noops = raw("BreakoutNoFrameskip-v4", seed)
    frame = seen_after(env, [NOOP] * noops + STEPS_OF_FIRE)
    ours = breakout()
    obs = ours.reset([seed]).obs[0]
    assert_array_equal(ale(game(ours)).getRAM(), ale(env).getRAM())
    assert_array_equal(obs, np.stack([frame] * 4))
    for action in (0, 2, 3, 3):
        obs = ours.step(np.array([action])).obs[0]
        assert_array_equal(obs[-1], seen_after(env, [action] * 4))
    ours.close()


def test_a_game_without_fire_begins_with_the_frame_of_its_last_noop() -> None:
    env, noops = raw("FreewayNoFrameskip-v4", 1)
    obs, _ = make_atari_baselines("FreewayNoFrameskip-v4", Atari(True, False)).reset(seed=1)
    assert_array_equal(obs, np.stack([seen_after(env, [NOOP] * noops, pooled=1)] * 4))


@pytest.mark.parametrize(("name", "begin"), [("Breakout", STEPS_OF_FIRE), ("MsPacman", [])], ids=["fire", "no fire"])
def test_the_frames_of_the_next_life_are_those_of_its_own_steps(name: str, begin: list[int]) -> None:
    """It begins in the same game with a no-op, and with fire where the game has it."""
    raw_env, noops = raw(f"{name}NoFrameskip-v4", 1)
    seen_after(raw_env, [NOOP] * noops + begin)
    env = GymnasiumEnv(Task("game", f"{name}NoFrameskip-v4", 1, RULES), "sync")
    env.reset([1])
    rng = np.random.default_rng(1)
    for _ in range(500):
        action = rng.integers(0, 4, 1)
        step = copy(env.step(action))
        assert_array_equal(step.obs[0, -1], seen_after(raw_env, [int(action[0])] * 4))
        if step.terminated[0]:
            break
    assert not step.episode_over[0]
    first = env.step(np.array([3])).obs[0]  # the action of a reset step is nobody's
    assert_array_equal(first, np.stack([seen_after(raw_env, [NOOP] * 4 + begin)] * 4))
    assert_array_equal(ale(game(env)).getRAM(), ale(raw_env).getRAM())
    env.close()


def test_the_limit_of_frames_counts_those_of_the_reset_and_truncates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atari_baselines, "MAX_FRAMES_PER_GAME", 60)
    env = breakout()
    env.reset([1])
    started = ale(game(env)).getEpisodeFrameNumber()
    steps = [copy(env.step(np.zeros(1, np.int64))) for _ in range(-(-(60 - started) // 4))]
    assert [bool(step.truncated[0]) for step in steps] == [False] * (len(steps) - 1) + [True]
    assert steps[-1].episode_over[0]
    assert not steps[-1].terminated[0]
    env.step(np.zeros(1, np.int64))
    assert ale(game(env)).getEpisodeFrameNumber() <= NOOP_MAX + len(STEPS_OF_FIRE)
    env.close()


def test_envpool_refuses_it() -> None:
    said = refusal(BACKENDS["envpool"], Task("pong", "Pong-v5", 1, RULES))
    assert said == (
        "env.atari.baselines: backend=envpool has resets of its own; use backend=gymnasium or env.atari.baselines=false"
    )


def test_the_preset_keeps_it_for_another_game_and_it_can_be_switched_off() -> None:
    task = load_config(["experiment=cleanrl/ppo_atari", "env=pong"]).task
    assert (task.id, task.atari) == ("PongNoFrameskip-v4", RULES)
    assert load_config(["experiment=cleanrl/ppo_atari", "env.atari.baselines=false"]).task.atari == Atari(True, True)
    assert load_config(["env=breakout", "backend=gymnasium"]).task.atari == Atari(True, True)
