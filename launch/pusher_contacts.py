#!/usr/bin/env python3
"""A test of whether Pusher's arm can move its object in the installed MuJoCo, for docs/results.md.

MuJoCo alone, without an environment: both models of gymnasium from the same starts and with the same random torques.
"""

from __future__ import annotations

from pathlib import Path

import gymnasium
import mujoco
import numpy as np

MODELS = {"Pusher-v4": "pusher.xml", "Pusher-v5": "pusher_v5.xml"}
EPISODES, STEPS, FRAME_SKIP = 400, 100, 5
MOVED_METRES = 0.1


def displacements(model: mujoco.MjModel, episodes: int) -> np.ndarray:
    """Metres by which the object is displaced at the end of each episode, `[episodes]`."""
    rng, moved = np.random.default_rng(0), np.zeros(episodes)
    for episode in range(episodes):
        data = mujoco.MjData(model)
        data.qpos[7:9] = start = rng.uniform((-0.3, -0.2), (0.0, 0.2))  # as the environment draws the object's place
        torques = rng.uniform(-2, 2, 7) + rng.normal(0, 0.5, (STEPS, 7))  # mostly in one direction
        for torque in torques:
            data.ctrl[:] = np.clip(torque, -2, 2)
            mujoco.mj_step(model, data, FRAME_SKIP)
        moved[episode] = np.linalg.norm(data.qpos[7:9] - start)
    return moved


def main() -> None:
    """Print a line for each model."""
    assets = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    for name, file in MODELS.items():
        moved = displacements(mujoco.MjModel.from_xml_path(str(assets / file)), EPISODES)
        print(
            f"MuJoCo {mujoco.__version__}, {name}: the object moves by more than {100 * MOVED_METRES:.0f} cm "
            f"in {(moved > MOVED_METRES).sum()} of {EPISODES} episodes, by at most {100 * moved.max():.1f} cm"
        )


if __name__ == "__main__":
    main()
