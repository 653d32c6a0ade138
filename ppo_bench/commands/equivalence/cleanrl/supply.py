"""What a script of CleanRL's is given before it starts: initial weights, and the seeds from which its noise follows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ppo_bench.configuration.config import Config
from ppo_bench.envs.observed import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.mathematics.normalize import ActionBounds
from ppo_bench.runners.declared import initial_arrays


@dataclass(frozen=True)
class Supply:
    """Facts of the training that the script repeats."""

    seed: int
    num_envs: int
    num_steps: int
    update_epochs: int
    minibatches: int
    """Number of minibatches of an iteration, in all its epochs."""
    warm_up: int
    """Number of rollouts before the training."""
    precision: str
    iterations: int
    """Number of iterations that are compared."""
    lanes: int
    """Number of actor outputs for one action."""
    discrete: bool
    sequences: bool
    """Whether minibatches consist of whole environments, as with an LSTM."""
    recurrent: bool
    """Whether the network has a memory, which is cleared before an episode."""
    masks_resets: bool
    """Whether steps that only reset an environment are left out of minibatches."""
    env_seeds: list[int]

    def save(self, folder: Path, initial: Arrays) -> None:
        """Write the facts and the `initial` arrays to `folder`."""
        (folder / "supply.json").write_text(json.dumps(asdict(self)))
        np.savez(folder / "initial.npz", **initial)  # type: ignore[arg-type]  # NumPy's stub takes no dictionary

    @classmethod
    def load(cls, folder: Path) -> tuple[Supply, Arrays]:
        """What `save` wrote."""
        with np.load(folder / "initial.npz") as initial:
            return cls(**json.loads((folder / "supply.json").read_text())), dict(initial)


def supply_of(config: Config, iterations: int) -> tuple[Supply, Arrays, ActionBounds | None]:
    """The facts, the initial arrays and the bounds of continuous actions of a training."""
    env = make_env(config.backend, config.task)
    try:
        problem = config.problem(env)
        network = problem.network
        supply = Supply(
            config.root.seed,
            config.ppo.num_envs,
            config.ppo.num_steps,
            config.ppo.update_epochs,
            config.ppo.update_epochs * config.ppo.num_minibatches,
            config.algorithm.warm_up,
            config.root.precision,
            iterations,
            network.actions.lanes,
            network.discrete,
            network.sequences,
            bool(network.carry),
            config.ppo.mask_resets,
            problem.env_seeds(config.root.seed, 0),
        )
        return supply, initial_arrays(problem, config.root.seed), problem.action_bounds
    finally:
        env.close()
