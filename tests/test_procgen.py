"""Procgen on EnvPool, and the network that goes with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from gymnasium import spaces
from numpy.testing import assert_array_equal
from settings import env_ids

from ppo_bench.configuration.load import load_config
from ppo_bench.mathematics.weights import initial_weights
from ppo_bench.networks.flax.layers import max_pool
from ppo_bench.networks.spec import Auto, ImpalaCnn, NatureCnn
from tests.processes import TRAIN
from tests.refusals import assert_one_line
from tests.training import ENVIRONMENT

pytestmark = pytest.mark.slow

GAMES = sorted({env for env, backend, env_id in env_ids() if env_id.endswith("Easy-v0")} - {"procgen"})
FRAMES = spaces.Box(0, 255, (3, 64, 64), np.uint8)


@pytest.mark.parametrize("by_products", [True, False], ids=["slices", "XLA's own"])
def test_the_first_of_equal_pixels_takes_the_gradient_in_both_frameworks(by_products: bool) -> None:
    images = np.array([[1, 1, 0, 2], [1, 1, 0, 2], [0, 0, 3, 3]], np.float32)[None, :, :, None]
    pooled = [[1, 2], [1, 3]]  # of the rows 0 to 1 and 1 to 2, the columns 0 to 1 and 1 to 3
    taken = [[1, 0, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0]]
    assert_array_equal(max_pool(jnp.array(images), by_products)[0, :, :, 0], pooled)
    gradient = jax.grad(lambda x: max_pool(x, by_products).sum())(jnp.array(images))
    assert_array_equal(gradient[0, :, :, 0], taken)
    x = torch.from_numpy(images).permute(0, 3, 1, 2).requires_grad_()
    y = torch.nn.functional.max_pool2d(x, 3, 2, 1)
    y.sum().backward()
    assert x.grad is not None
    assert_array_equal(y.detach()[0, 0], pooled)
    assert_array_equal(x.grad[0, 0], taken)


def test_heads_have_their_gains_and_the_agent_the_size_of_cleanrls() -> None:
    """The hidden layers' initial values are PyTorch's; tests/test_weights.py has them."""
    spec = ImpalaCnn().build(FRAMES, spaces.Discrete(15))
    weights = initial_weights(spec.parameters, seed=1)
    assert np.linalg.norm(weights["actor.0.weight"], axis=1) == pytest.approx(0.01)
    assert np.linalg.norm(weights["critic.0.weight"]) == pytest.approx(1.0)
    assert sum(array.size for array in weights.values()) == 626_256  # CleanRL's agent of 15 actions


@pytest.mark.parametrize("shape", [(3, 64, 64), (64, 64, 3)])
def test_auto_takes_it_for_frames_of_64_x_64_in_colour_alone(shape: tuple[int, ...]) -> None:
    auto, actions, other = Auto([64, 64], "tanh"), spaces.Discrete(15), spaces.Box(0, 255, (3, 96, 96), np.uint8)
    found = auto.build(spaces.Box(0, 255, shape, np.uint8), actions)
    assert found.module == ImpalaCnn().build(FRAMES, actions).module
    assert auto.build(other, actions) == NatureCnn().build(other, actions)


def test_there_are_16_games_easy_and_hard() -> None:
    import envpool

    assert len(GAMES) == 16
    for game in GAMES:
        easy, hard = load_config([f"env={game}"]).task, load_config([f"env={game}", "env.mode=Hard"]).task
        assert {easy.id, hard.id} <= set(envpool.list_all_envs())
        assert (easy.name, easy.id, hard.id) == (game, f"{game.capitalize()}Easy-v0", f"{game.capitalize()}Hard-v0")


def test_a_missing_qt_is_one_line_that_names_its_packages(tmp_path: Path) -> None:
    """In a process of its own, to which a folder shows a library without content in place of Qt's."""
    (tmp_path / "libQt5Core.so.5").touch()
    command = [*TRAIN, "env=starpilot", f"outputs={tmp_path}/outputs"]
    environment = ENVIRONMENT | {"LD_LIBRARY_PATH": str(tmp_path)}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 2, run.stderr
    for word in ("StarpilotEasy-v0", "Qt 5", "make setup-procgen"):
        assert_one_line(run.stderr, word)
