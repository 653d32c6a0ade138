"""Dictionaries of images and numbers: the place of each array in the vector, and a policy that needs both."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from numpy.testing import assert_array_equal

from ppo_bench.common.flattened import Flattened, images_in, leaves
from ppo_bench.envs.base import Task
from ppo_bench.envs.gymnasium import GymnasiumBackend
from tests.processes import TRAIN
from tests.training import ENVIRONMENT

SIDE = 36


class Agreeing(gymnasium.Env[dict[str, Any], np.int64]):
    """One-step episodes: 1 is right if a bright image comes with a positive number, or a dark one with a negative one.

    Neither alone says anything about the right action.
    """

    observation_space = spaces.Dict(
        {"camera": spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8), "sign": spaces.Box(-1.0, 1.0, (1,), np.float32)}
    )
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.bright, self.positive = self.np_random.integers(2, size=2)
        return self._obs(), {}

    def step(self, action: np.int64) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return self._obs(), float(action == (self.bright == self.positive)), True, False, {}

    def _obs(self) -> dict[str, Any]:
        camera = np.full((SIDE, SIDE, 3), 255 * self.bright, np.uint8)
        return {"camera": camera, "sign": np.array([2.0 * self.positive - 1.0], np.float32)}


gymnasium.register("Agreeing-v0", "tests.test_combined:Agreeing")
ENV_ID = "tests.test_combined:Agreeing-v0"


def test_arrays_lie_where_gymnasium_puts_them() -> None:
    space: Any = spaces.Dict(
        {
            "z": spaces.Discrete(3),
            "arm": spaces.Dict({"view": spaces.Box(0, 1, (2, 3, 4)), "angles": spaces.Box(-1, 1, (2,))}),
            "pair": spaces.Tuple((spaces.Box(-1, 1, (2, 2)), spaces.MultiDiscrete([2, 3]))),
        }
    )
    flat: Any = spaces.flatten_space(space)
    found = Flattened(flat, leaves(space))
    assert found == flat
    assert list(found.arrays) == ["arm:angles", "arm:view", "pair:0", "pair:1", "z"]
    space.seed(1)
    sample = space.sample()
    vector: Any = spaces.flatten(space, sample)

    def part(path: str) -> np.ndarray:
        place = found.arrays[path]
        return vector[place.start : place.stop].reshape(place.shape)

    assert_array_equal(part("arm:angles"), sample["arm"]["angles"])
    assert_array_equal(part("arm:view"), sample["arm"]["view"])
    assert_array_equal(part("pair:0"), sample["pair"][0])
    assert_array_equal(part("z"), np.arange(3) == sample["z"])
    assert [list(images_in(found, least)) for least in (2, 3, 4)] == [["arm:view"], ["arm:view"], []]


@pytest.mark.parametrize("vectorization", ["sync", "async"])
def test_environments_say_where_their_images_are(vectorization: str) -> None:
    env = GymnasiumBackend("gymnasium", vectorization).make(Task("x", ENV_ID, 2))
    obs = env.reset([1, 2]).obs
    ((path, place),) = images_in(env.observation_space, SIDE).items()
    assert (path, place.start, place.shape) == ("camera", 0, (SIDE, SIDE, 3))
    assert obs.shape == (2, SIDE * SIDE * 3 + 1)
    assert set(np.unique(obs[:, : place.stop])) <= {0.0, 1.0}  # bytes beside numbers are scaled
    env.close()


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla"])
def test_a_policy_that_needs_image_and_number_is_learnt(framework: str, tmp_path: Path) -> None:
    words = [f"env.id={ENV_ID}", "ppo.num_envs=16", "ppo.num_steps=32", "ppo.learning_rate=1e-3", "ppo.gamma=0.0"]
    command = [*TRAIN, *words, f"framework={framework}", "total_timesteps=20480", f"outputs={tmp_path}", "device=cpu"]
    run = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    result = json.loads((Path(run.stdout.splitlines()[-1]) / "result.json").read_text())
    assert result["final_return_mean"] > 0.9  # chance is 0.5
