"""Comparison of `env.atari.baselines=true` with the wrapped environment of CleanRL's ppo_atari.py, step by step.

    python -m tests.beside_cleanrl PATH_TO_CLEANRL --game Breakout --steps 5000 --seed 1

PATH_TO_CLEANRL is a checkout of CleanRL; this Python also needs the packages that its script imports (tyro,
tensorboard). Both environments get the same seed and the same random actions. After each action the frames, the clipped
reward, the end of an episode, the lives and the RAM of the game with its frame counters are compared; at the end of an
episode also the last frames and lives, and those after the reset. CleanRL resets within the step that ends an episode,
this project in a step of its own, which is not counted. If a life is lost in the last frames of the limit, CleanRL's
end is both terminated and truncated, and ours only truncated. Exits with 1 at the first difference. `--without`
compares ours without the option; `--limit` truncates games after that many frames.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from ppo_bench.envs import atari_baselines
from ppo_bench.envs.base import Atari, Task
from ppo_bench.envs.gymnasium import GymnasiumEnv

Shown = dict[str, Any]
"""Everything that one step shows, by name."""


def main() -> int:
    """Play both until they differ, and print how many steps agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="a checkout of vwxyzjn/cleanrl")
    parser.add_argument("--game", default="Breakout")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, default=0, help="frames of a game; 0: as many as CleanRL's ids have")
    parser.add_argument("--without", action="store_true", help="ours without the option")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    env_id = f"{asked.game}NoFrameskip-v4"
    if asked.limit:
        gymnasium.spec(env_id).kwargs["max_num_frames_per_episode"] = asked.limit
        atari_baselines.MAX_FRAMES_PER_GAME = asked.limit
    theirs = SyncVectorEnv([cleanrl_env(asked.path, env_id)], autoreset_mode=AutoresetMode.SAME_STEP)
    rules = Atari(episodic_life=True, reward_clip=True, baselines=not asked.without)
    ours = GymnasiumEnv(Task(asked.game, env_id, 1, rules), "sync")
    choices = int(ours.action_space.n)
    actions = np.random.default_rng(asked.seed).integers(0, choices, (asked.steps, 1))
    met: Counter[str] = Counter()
    plays = zip(play_ours(ours, asked.seed, actions), play_theirs(theirs, asked.seed, actions), strict=True)
    for step, (here, there) in enumerate(plays):
        if differing := different(here, there):
            after = "the first reset" if step == 0 else f"step {step}"
            told = f"{asked.game}: {max(step - 1, 0)} steps agree; {after} differs in {', '.join(differing)}"
            print(f"{told} ({list_of(met)})")
            return 1
        met += Counter(
            {
                "games over": int("terminated" in here["end"] and here["last lives"] == 0),
                "lives lost": int("terminated" in here["end"] and here["last lives"] > 0),
                "truncated": int("truncated" in here["end"]),
                "rewards": int(here["reward"] != 0),
            }
        )
    print(f"{asked.game}, seed {asked.seed}: all {asked.steps} steps agree ({list_of(met)})")
    return 0


def cleanrl_env(path: Path, env_id: str) -> Any:
    """CleanRL's own thunk of one environment, under the names that gymnasium has given its wrappers since."""
    wrappers: Any = gymnasium.wrappers
    wrappers.GrayScaleObservation, wrappers.FrameStack = wrappers.GrayscaleObservation, wrappers.FrameStackObservation
    sys.path[:0] = [str(path.resolve()), str(path.resolve() / "cleanrl")]
    return importlib.import_module("ppo_atari").make_env(env_id, 0, False, "")


def play_theirs(envs: SyncVectorEnv, seed: int, actions: np.ndarray) -> Iterator[Shown]:
    """CleanRL's reset, and each of its steps."""
    obs, _ = envs.reset(seed=[seed])
    game: Any = envs.envs[0]
    yield shown(obs[0], game, end(False, False))
    for action in actions:
        obs, reward, terminated, truncated, info = envs.step(action)
        given = end(terminated[0], truncated[0], reward[0])
        if given["end"]:
            given |= {"last frames": info["final_obs"][0], "last lives": info["final_info"]["lives"][0]}
        yield shown(obs[0], game, given)


def play_ours(envs: GymnasiumEnv, seed: int, actions: np.ndarray) -> Iterator[Shown]:
    """Our reset, and each step together with that of the reset where there is one."""
    obs = envs.reset([seed]).obs
    game: Any = envs._envs._envs.envs[0]
    yield shown(obs[0], game, end(False, False))
    for action in actions:
        step = envs.step(action).map(np.copy)
        obs = step.obs
        given = end(step.terminated[0], step.truncated[0], step.reward[0])
        if given["end"]:
            given |= {"last frames": step.obs[0], "last lives": game.unwrapped.ale.lives()}
            before = game.unwrapped.ale.getEpisodeFrameNumber()
            first = envs.step(np.zeros_like(action))
            obs = first.obs
            assert not np.any([first.reward, first.terminated, first.truncated])
            # Not the other way round: a game can end in the steps of a reset.
            assert not step.episode_over[0] or game.unwrapped.ale.getEpisodeFrameNumber() < before
        yield shown(obs[0], game, given)


def shown(obs: np.ndarray, game: Any, given: Shown) -> Shown:
    """What can be seen of a game at any time, and what a step has `given`."""
    ale = game.unwrapped.ale
    counters = {"frame number": ale.getFrameNumber(), "frame number of the game": ale.getEpisodeFrameNumber()}
    return {"frames": np.array(obs), "lives": ale.lives(), "RAM": ale.getRAM()} | counters | given


def end(terminated: bool, truncated: bool, reward: float = 0.0) -> Shown:
    """The reward of a step, and by what it ends an episode."""
    flags = {"terminated": terminated, "truncated": truncated}
    return {"reward": reward, "end": {name for name, flag in flags.items() if flag}}


def different(here: Shown, there: Shown) -> list[str]:
    """The names of what differs."""
    names = sorted((here.keys() | there.keys()) - {"end"})
    differing = [name for name in names if not same(here.get(name), there.get(name))]
    ends_alike = bool(here["end"]) == bool(there["end"]) and here["end"] <= there["end"]
    return differing + ["end"] * (not ends_alike)


def same(here: Any, there: Any) -> bool:
    """Equal values, arrays of equal types too."""
    return np.array_equal(here, there) and (np.ndim(here) == 0 or here.dtype == there.dtype)


def list_of(met: Counter[str]) -> str:
    """What was met on the way."""
    return ", ".join(f"{met[name]} {name}" for name in ("lives lost", "games over", "truncated", "rewards"))


if __name__ == "__main__":
    sys.exit(main())
