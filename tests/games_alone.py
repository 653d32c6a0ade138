"""`python -m tests.games_alone NUM_ENVS NUM_STEPS`: the speed of Breakout on EnvPool with random actions.

It prints environment steps per second without a policy and without learning: the limit of any training.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing
from typing import Any

import numpy as np

from ppo_bench.configuration.load import load_config
from ppo_bench.envs.make import make_env


def main() -> None:
    """See the module's docstring."""
    num_envs, num_steps = map(int, sys.argv[1:3])
    config = load_config(["env=breakout", "backend=envpool", f"ppo.num_envs={num_envs}"])
    env: Any = make_env(config.backend, config.task)
    actions = np.random.default_rng(0).integers(env.action_space.n, size=(num_steps, num_envs))
    with closing(env):
        env.reset(range(num_envs))
        started = time.perf_counter()
        for row in actions:
            env.step(row)
        print(num_steps * num_envs / (time.perf_counter() - started))


if __name__ == "__main__":
    main()
