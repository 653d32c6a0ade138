"""One episode of a policy as an mp4 file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ppo_bench.envs.base import EnvStep, PolicyInput
from ppo_bench.runs.play import Player, play
from ppo_bench.runs.video.scene import Scene

SMALLEST_SIDE = 256
"""Minimum side of a frame, in pixels; smaller frames, such as Procgen's, are enlarged by whole factors."""


def record_video(scene: Scene, player: Player, seed: int, path: Path) -> dict[str, Any]:
    """Record the first episode of `player` in `path`; its return, length, frames, and frames per second."""
    with open_mp4(path, scene.fps) as add:
        env = RecordedEnv(scene, add)
        (episode,) = play(env, player, 1, seed)
    return {"frames": env.frames, "fps": scene.fps, "return": episode.episode_return, "length": episode.length}


class RecordedEnv:
    """The environment of a scene, a `VectorEnv`, that gives a picture to `add` after its reset and after every step."""

    def __init__(self, scene: Scene, add: Callable[[np.ndarray], None]) -> None:
        self.num_envs = scene.env.num_envs
        self.observation_space: Any = scene.env.observation_space
        self.action_space: Any = scene.env.action_space
        self.masks_actions = scene.env.masks_actions
        self.frames = 0
        self._scene, self._add = scene, add

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        """See `VectorEnv.reset`."""
        policy_input = self._scene.env.reset(seeds)
        self._picture(policy_input.obs)
        return policy_input

    def step(self, actions: np.ndarray) -> EnvStep:
        """See `VectorEnv.step`."""
        step = self._scene.env.step(actions)
        self._picture(step.obs)
        return step

    def close(self) -> None:
        """See `VectorEnv.close`."""
        self._scene.env.close()

    def _picture(self, obs: np.ndarray) -> None:
        self._add(self._scene.draw(obs))
        self.frames += 1


@contextmanager
def open_mp4(path: Path, fps: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that adds a frame, `[H, W, 3]` uint8, to a temporary file, which becomes `path` in the end."""
    import av  # in this process: an ffmpeg process would need a fork, which JAX's threads forbid

    aside = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        with av.open(str(aside), "w") as container:
            stream = container.add_stream("libx264", rate=fps, options={"crf": "18"})
            stream.pix_fmt = "yuv420p"
            is_first = True

            def add(frame: np.ndarray) -> None:
                nonlocal is_first
                factor = max(1, SMALLEST_SIDE // min(frame.shape[:2]))
                frame = frame.repeat(factor, axis=0).repeat(factor, axis=1)
                frame = frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2]  # the pixel format needs even sides
                if is_first:
                    stream.height, stream.width = frame.shape[:2]
                    is_first = False
                picture = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24")
                container.mux(stream.encode(picture))

            yield add
            container.mux(stream.encode())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
