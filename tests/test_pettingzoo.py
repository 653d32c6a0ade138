"""PettingZoo's games: rows, frames, refusals."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from pettingzoo import ParallelEnv

from ppo_bench.commands.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.atari_players import roms
from ppo_bench.envs.base import GraphEnv, Task, VectorEnv
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.envpool import EnvPoolBackend
from ppo_bench.envs.pettingzoo import PettingZooBackend
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.torch import TorchOps
from ppo_bench.runs.video.filmed import draw_off_screen, film

ATARI = {"pong_two_players": "pong_v3", "surround_two_players": "surround_v2", "tennis_two_players": "tennis_v3"}


def backend(vectorization: str = "sync") -> PettingZooBackend:
    return PettingZooBackend("pettingzoo", vectorization)


def of_file(name: str, *words: str, rows: int = 4) -> VectorEnv:
    config = load_config([f"env={name}", f"ppo.num_envs={rows}", *words])
    env = config.backend.make(config.task)
    assert not isinstance(env, GraphEnv)
    return env


def broken(make: Any, num_steps: int) -> dict[str, str]:
    return {finding.rule: finding.evidence for finding in check_contract(make, num_steps) if not finding.kept}


# --- The contract -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["classic/connect_four-v3", "classic/tictactoe-v3", "classic/rps-v2"])
def test_games_in_turn_and_at_once_keep_the_contract(name: str) -> None:
    task = Task("any", name, 6, players=2)
    assert broken(lambda: backend().make(task), 200) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ATARI)
def test_atari_of_two_players_keeps_the_contract(name: str) -> None:
    assert broken(lambda: of_file(name), 9_000) == {}  # the shortest of Tennis's games take thousands of steps


def test_processes_step_the_same_games() -> None:
    task = Task("any", "classic/connect_four-v3", 4, players=2)
    rng, envs = np.random.default_rng(0), [backend(kind).make(task) for kind in ("sync", "async")]
    try:
        seen = [env.reset([1, 1, 2, 2]) for env in envs]
        for _ in range(60):
            for one, other in zip(*seen, strict=True):
                assert_array_equal(one, other)
            legal = seen[0].legal
            assert legal is not None
            actions = np.array([rng.choice(np.flatnonzero(row)) for row in legal])
            seen = [env.step(actions).seen for env in envs]
    finally:
        for env in envs:
            env.close()


def test_two_backends_play_the_same_four_in_a_row() -> None:
    """EnvPool's games are pgx's in C++; who begins is drawn there, and is the first player here."""
    ours = backend().make(Task("any", "classic/connect_four-v3", 2, players=2))
    theirs = EnvPoolBackend("envpool", 1).make(Task("any", "ConnectFour-v1", 2, players=2))
    try:
        rng = np.random.default_rng(3)
        one, other = ours.reset([5, 5]), theirs.reset([5, 5])
        for _ in range(40):
            assert one.acts is not None
            assert one.legal is not None
            assert other.acts is not None
            assert other.legal is not None
            swap = slice(None, None, 1 if other.acts[0] == one.acts[0] else -1)  # rows begin in the other order there
            assert_array_equal(one.obs, other.obs[swap])
            assert_array_equal(one.legal, other.legal[swap])
            column = rng.choice(np.flatnonzero(one.legal[one.acts.argmax()]))
            a, b = ours.step(np.full(2, column)), theirs.step(np.full(2, column))
            assert_array_equal(a.raw_reward, b.raw_reward[swap])
            assert_array_equal(a.terminated, b.terminated)
            if a.terminated.all():
                return
            one, other = a.seen, b.seen
        pytest.fail("no game has ended")
    finally:
        ours.close()
        theirs.close()


# --- Atari ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATARI)
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
        seen = env.reset([5, 5])
        expected, _ = wrapped.reset(seed=int(np.random.default_rng(5).integers(2**31)))
        for _ in range(400):
            assert_array_equal(seen.obs, np.stack(list(expected.values())))
            actions = rng.integers(env.action_space.n, size=2)
            step = env.step(actions)
            expected, rewards, *_ = wrapped.step(dict(zip(expected, actions.tolist(), strict=True)))
            assert step.reward.tolist() == list(rewards.values())
            seen, points = step.seen, points + float(np.abs(step.reward).sum())
        assert seen.obs.shape == (2, 84, 84, 6)
        assert [seen.obs[row, 0, 0, 4:].tolist() for row in (0, 1)] == [[255, 0], [0, 255]]
        assert points > 0 or name == "tennis_two_players"  # where a first serve can take longer
    finally:
        env.close()


def test_the_preset_leaves_the_planes_that_say_who_looks_undivided() -> None:
    """As CleanRL's script: four channels over 255, and 255 in the planes of the players."""
    config = load_config(["experiment=cleanrl/ppo_pettingzoo_ma_atari", "ppo.num_envs=2"])
    env = config.backend.make(config.task)
    network = config.network_for(env)
    obs = torch.from_numpy(network.arrange(env.reset([5, 5]).obs))  # type: ignore[union-attr]
    env.close()
    arrays = initial_weights(network.parameters, 1)
    params = {name: torch.from_numpy(array) for name, array in arrays.items()}
    head, values, _ = network.forward(TorchOps(torch.float32, torch.float32), params, obs, {}, None)
    x = torch.cat((obs[..., :4].float() / 255.0, obs[..., 4:].float()), -1).permute(0, 3, 1, 2)
    for layer, stride in enumerate((4, 2, 1)):
        weight = params[f"trunk.{layer}.weight"].permute(0, 3, 1, 2)
        x = torch.relu(torch.nn.functional.conv2d(x, weight, params[f"trunk.{layer}.bias"], stride))
    x = x.permute(0, 2, 3, 1).flatten(1)
    x = torch.relu(x @ params["trunk.3.weight"].T + params["trunk.3.bias"])
    torch.testing.assert_close(head[0], x @ params["actor.0.weight"].T + params["actor.0.bias"], rtol=1e-4, atol=1e-4)
    expected = x @ params["critic.0.weight"].T + params["critic.0.bias"]
    torch.testing.assert_close(values, expected[:, 0], rtol=1e-4, atol=1e-3)
    assert abs(values).min() > 1  # planes of 255 are loud


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (["env=pong_two_players"], (210, 160)),
        (["backend=pettingzoo", "env.id=classic/connect_four-v3", "env.players=2"], None),
    ],
)
def test_games_are_drawn(words: list[str], shape: tuple[int, int] | None, tmp_path: Path) -> None:
    draw_off_screen()
    env = film(load_config(words), tmp_path / "game.mp4", "video=true")
    try:
        seen = env.reset([1, 1])
        for _ in range(20):
            legal = seen.legal if seen.legal is not None else np.ones((2, 6), bool)
            seen = env.step(legal.argmax(1)).seen
        env.mp4.finish()
    finally:
        env.close()
    with av.open(str(tmp_path / "game.mp4")) as video:
        frames = [frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)]
    assert len(frames) == 21
    assert shape is None or frames[0].shape[:2] == shape
    assert (frames[0] != frames[-1]).any()


# --- Refusals ---------------------------------------------------------------------------------------------------------


class Leaving(ParallelEnv[str, np.ndarray, int]):  # type: ignore[misc]
    """A game of two in which `b` leaves after three steps, or a third player comes."""

    metadata = {"name": "leaving"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, comes: bool = False, render_mode: str | None = None) -> None:
        self._comes, self.render_mode = comes, render_mode

    def observation_space(self, agent: str) -> Any:
        from gymnasium import spaces

        return spaces.Box(0, 1, (2,), np.float32)

    def action_space(self, agent: str) -> Any:
        from gymnasium import spaces

        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self._steps, self.agents = 0, ["a", "b"]
        return {agent: np.zeros(2, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self._steps += 1
        here = ["a", "b", "c"] if self._comes and self._steps > 2 else ["a", "b"]
        ends = {agent: agent == "b" and self._steps == 3 and not self._comes for agent in here}
        given = {agent: np.zeros(2, np.float32) for agent in here}
        return given, dict.fromkeys(here, 0.0), ends, dict.fromkeys(here, False), {agent: {} for agent in here}


class Unlike(Leaving):
    """A game whose players see different things."""

    def observation_space(self, agent: str) -> Any:
        from gymnasium import spaces

        return spaces.Box(0, 1, (2 if agent == "a" else 3,), np.float32)


def said(capfd: pytest.CaptureFixture[str], tmp_path: Path, *words: str) -> str:
    """The one line with which a training ends in exit code 2."""
    assert exit_code(main, [f"outputs={tmp_path}", "framework=torch_eager", *words]) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n"), list(tmp_path.rglob("run.json"))) == ("", 1, [])
    return err.removeprefix("ppo_bench: ").strip()


@pytest.mark.parametrize(
    ("entry", "arguments", "line"),
    [
        ("Leaving", "", "test/game-v0: b ended before a: environments whose agents come and go are not supported"),
        ("Leaving", "comes:true", "test/game-v0: it has a, b, c, and had a, b: environments whose agents come and go"),
        ("Unlike", "", "test/game-v0: a and b have other spaces, and one network is to play both"),
    ],
)
def test_players_that_one_network_cannot_play_are_refused_by_name(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], entry: str, arguments: str, line: str
) -> None:
    import pettingzoo

    pettingzoo.register("parallel", "test/game-v0", f"{__name__}:{entry}")
    try:
        words = ("backend=pettingzoo", "env.id=test/game-v0", "env.players=2", f"env.kwargs={{{arguments}}}")
        assert said(capfd, tmp_path, *words).startswith(line)
    finally:
        del pettingzoo.parallel_registry["test/game-v0"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["env=pong_two_players", "env.kwargs={auto_rom_install_path:/nowhere}"],
            "atari/pong-v3: rom pong is not installed: pip install --force-reinstall ale-py, which brings it",
        ),
        (
            ["env=atari_two_players", "env.game=pongg-v3"],
            "PettingZoo has no environment 'atari/pongg-v3'; did you mean atari/pong-v3",
        ),
        (["env=atari_two_players", "env.game=warlords-v3"], "env.players=2: atari/warlords-v3 is a game of 4 players"),
        (["env=pong_two_players", "env.atari.episodic_life=true"], "env.atari.episodic_life=true: players of atari/"),
        (["env=pong_two_players", "ppo.num_envs=15"], "ppo.num_envs=15: atari/pong-v3 has a row for each of"),
        (["env=pong_two_players", "backend.vectorization=both"], "backend.vectorization=both: choose sync or async"),
        (["env=pong_two_players", "network.undivided_channels=6"], "network.undivided_channels=6: images have 6"),
    ],
)
def test_wrong_input_is_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    network = ["network=nature_cnn"] if any("network." in word for word in words) else []
    assert said(capfd, tmp_path, *network, *words).startswith(line)


def test_players_who_die_are_named_before_or_while_training(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["backend=pettingzoo", "env.id=butterfly/knights_archers_zombies-v11", "env.players=4"]
    assert exit_code(main, ["framework=torch_eager", f"outputs={tmp_path}", *words]) in (
        1,
        2,
    )  # zombies take their time
    last = capfd.readouterr().err.splitlines()[-1]
    assert re.search(r"butterfly/knights_archers_zombies-v11: (knight|archer)_[01] ended before ", last)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "multi_agent_ale_py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if "multi" in name else object())
    with pytest.raises(ConfigError, match=r"needs multi_agent_ale_py, which is not installed: pip install"):
        of_file("pong_two_players", rows=2)
