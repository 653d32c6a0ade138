"""Games of PettingZoo: rows, frames, pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.atari_players import roms
from ppo_bench.envs.base import GraphEnv, Task, VectorEnv
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.pettingzoo import PettingZooBackend
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.runs.video.record_video import open_mp4
from ppo_bench.runs.video.scene import draw_off_screen, open_scene
from tests.runners import composed
from tests.videos import frames_of

ATARI = {"pong_two_players": "pong_v3", "surround_two_players": "surround_v2", "tennis_two_players": "tennis_v3"}


def backend(vectorization: str = "sync") -> PettingZooBackend:
    return PettingZooBackend("pettingzoo", vectorization)


def of_file(name: str, *words: str, rows: int = 4) -> VectorEnv:
    config = composed(f"env={name}", f"ppo.num_envs={rows}", *words)
    env = config.backend.make(config.task)
    assert not isinstance(env, GraphEnv)
    return env


def broken(make: Any, num_steps: int) -> dict[str, str]:
    return {finding.rule: finding.evidence for finding in check_contract(make, num_steps) if not finding.holds}


# --- The contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classic/connect_four-v3", "classic/tictactoe-v3", "classic/rps-v2"])
def test_games_in_turn_and_at_once_keep_the_contract(name: str) -> None:
    task = Task("any", name, 6, players=2)
    assert broken(lambda: backend().make(task), 200) == {}


@pytest.mark.slow
def test_atari_of_two_players_keeps_the_contract() -> None:
    """With games that end at a limit; those above end by themselves."""
    assert broken(lambda: of_file("pong_two_players", "env.kwargs={max_cycles:800}"), 450) == {}


def test_processes_step_the_same_games() -> None:
    task = Task("any", "classic/connect_four-v3", 4, players=2)
    rng, envs = np.random.default_rng(0), [backend(kind).make(task) for kind in ("sync", "async")]
    try:
        policy_inputs = [env.reset([1, 1, 2, 2]) for env in envs]
        for _ in range(60):
            for one, other in zip(*policy_inputs, strict=True):
                assert_array_equal(one, other)
            action_mask = policy_inputs[0].action_mask
            assert action_mask is not None
            actions = np.array([rng.choice(np.flatnonzero(row)) for row in action_mask])
            policy_inputs = [env.step(actions).policy_input for env in envs]
    finally:
        for env in envs:
            env.close()


# --- Atari ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["pong_two_players", *(pytest.param(name, marks=pytest.mark.slow) for name in list(ATARI)[1:])]
)
def test_frames_and_rewards_are_those_of_the_wrappers_of_cleanrls_script(name: str) -> None:
    """Its chain of SuperSuit's wrappers, on the same game with the same actions."""
    import importlib

    import supersuit

    module = importlib.import_module(f"pettingzoo.atari.{ATARI[name]}")
    wrapped = supersuit.max_observation_v0(module.parallel_env(auto_rom_install_path=roms()), 2)
    wrapped = supersuit.clip_reward_v0(supersuit.frame_skip_v0(wrapped, 4), lower_bound=-1, upper_bound=1)
    wrapped = supersuit.resize_v1(supersuit.color_reduction_v0(wrapped, mode="B"), x_size=84, y_size=84)
    wrapped = supersuit.agent_indicator_v0(supersuit.frame_stack_v1(wrapped, 4), type_only=False)
    env, rng, points = of_file(name, rows=2), np.random.default_rng(1), 0.0
    try:
        policy_input = env.reset([5, 5])
        expected, _ = wrapped.reset(seed=int(np.random.default_rng(5).integers(2**31)))
        for _ in range(400):
            assert_array_equal(policy_input.obs, np.stack(list(expected.values())))
            actions = rng.integers(env.action_space.n, size=2)
            step = env.step(actions)
            expected, rewards, *_ = wrapped.step(dict(zip(expected, actions.tolist(), strict=True)))
            assert step.reward.tolist() == list(rewards.values())
            policy_input, points = step.policy_input, points + float(np.abs(step.reward).sum())
        assert policy_input.obs.shape == (2, 84, 84, 6)
        assert [policy_input.obs[row, 0, 0, 4:].tolist() for row in (0, 1)] == [[255, 0], [0, 255]]
        assert points > 0 or name == "tennis_two_players"  # where a first serve can take longer
    finally:
        env.close()


@pytest.mark.slow
def test_the_preset_marks_the_observing_player_by_planes_of_1() -> None:
    """As CleanRL's script, with the wrapper that it pins: frames are divided by 255, the planes are 0 and 1."""
    config = load_config(["experiment=cleanrl/ppo_pettingzoo_ma_atari", "ppo.num_envs=2"])
    env = config.backend.make(config.task)
    network = config.network_for(env)
    obs = torch.from_numpy(network.to_input_layout(env.reset([5, 5]).obs))  # type: ignore[call-arg, union-attr]
    env.close()
    arrays = initial_weights(network.parameters, 1)
    params = {name: torch.from_numpy(array) for name, array in arrays.items()}
    policy_outputs, values, _ = network.forward(TorchOps(torch.float32, torch.float32), params, obs, {}, None)
    x = torch.cat((obs[..., :4].float() / 255.0, (obs[..., 4:] > 0).float()), -1).permute(0, 3, 1, 2)
    for layer, stride in enumerate((4, 2, 1)):
        weight = params[f"trunk.{layer}.weight"].permute(0, 3, 1, 2)
        x = torch.relu(torch.nn.functional.conv2d(x, weight, params[f"trunk.{layer}.bias"], stride))
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = torch.relu(x @ params["trunk.3.weight"].T + params["trunk.3.bias"])
    torch.testing.assert_close(
        policy_outputs[0], x @ params["actor.0.weight"].T + params["actor.0.bias"], rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(values, (x @ params["critic.0.weight"].T + params["critic.0.bias"])[:, 0])
    assert abs(values).max() < 10


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["env=pong_two_players"], (210, 160)),
        (["backend=pettingzoo", "env.id=classic/connect_four-v3", "env.players=2"], None),
    ],
)
def test_games_are_drawn(words: list[str], shape: tuple[int, int] | None, tmp_path: Path) -> None:
    draw_off_screen()
    config = load_config(words)
    scene = open_scene(config, to_vector_env(config.backend.make(config.task.with_num_envs(1))))
    with open_mp4(tmp_path / "game.mp4", scene.fps) as add:
        policy_input = scene.env.reset([1, 1])
        add(scene.draw())
        for _ in range(20):
            action_mask = policy_input.action_mask if policy_input.action_mask is not None else np.ones((2, 6), bool)
            policy_input = scene.env.step(action_mask.argmax(1)).policy_input
            add(scene.draw())
        scene.env.close()
    frames = frames_of(tmp_path / "game.mp4")
    assert len(frames) == 21
    assert shape is None or frames[0].shape[:2] == shape
    assert (frames[0] != frames[-1]).any()
