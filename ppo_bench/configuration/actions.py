"""Whether an environment has actions of floats, which to find out it is made."""

from __future__ import annotations

import os

from ppo_bench.configuration.choices import Backend
from ppo_bench.envs.base import Task
from ppo_bench.envs.observed import make_env


def acts_by_floats(backend: Backend, task: Task) -> bool:
    """Whether the actions of a task are floats, which to find out it is made; False if it cannot be."""
    from gymnasium import spaces

    before = dict(os.environ)
    try:
        backend.require()
        env = make_env(backend, task.alone())
        env.close()
        return isinstance(env.action_space, spaces.Box)
    except Exception:  # whatever it is, the one who is to train it meets it again, and says it
        return False
    finally:  # what libraries of physics were told is no business of the training
        os.environ.clear()
        os.environ.update(before)
