"""`python -m tests.brax_ppo NUM_ENVS ITERATIONS PRECISION`: the speed of Brax's own PPO on its Ant.

It prints the environment steps per second of the last third of the iterations; in the others it compiles, twice.
Rollouts, minibatches, epochs and layers have the sizes of `env=brax_ant`. PRECISION is that of JAX's matrix products.
Its files are executed unchanged; a function that current JAX no longer has is replaced in this process.
"""

from __future__ import annotations

import functools
import sys

import jax
import jax.numpy as jnp
from brax import envs
from brax.training.agents.ppo import networks
from brax.training.agents.ppo.train import train

STEPS, MINIBATCHES, EPOCHS, LAYERS = 32, 8, 4, (64, 64)


def main() -> None:
    """See the module's docstring."""
    num_envs, iterations = map(int, sys.argv[1:3])
    jax.config.update("jax_default_matmul_precision", sys.argv[3])
    # On one device, which is all that is measured, the trainer's arrays get an axis of length 1.
    vars(jax)["device_put_replicated"] = lambda tree, _: jax.tree.map(lambda x: jnp.asarray(x)[None], tree)
    speeds: list[float] = []
    train(
        envs.get_environment("ant", backend="mjx"),
        num_timesteps=num_envs * STEPS * iterations,
        max_devices_per_host=1,
        episode_length=1_000,
        num_envs=num_envs,
        unroll_length=STEPS,
        batch_size=num_envs // MINIBATCHES,
        num_minibatches=MINIBATCHES,
        num_updates_per_batch=EPOCHS,
        normalize_observations=True,
        network_factory=functools.partial(
            networks.make_ppo_networks, policy_hidden_layer_sizes=LAYERS, value_hidden_layer_sizes=LAYERS
        ),
        num_evals=4,  # it reports after each third of the iterations
        run_evals=False,
        progress_fn=lambda _, metrics: speeds.append(float(metrics["training/sps"])),
    )
    print(speeds[-1])


if __name__ == "__main__":
    main()
