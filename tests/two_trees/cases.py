"""The commands of `same`; those of `lockstep`: every network, algorithm, backend (but `tensors`) and framework."""

from __future__ import annotations

from typing import NamedTuple

FRAMEWORKS = ("torch_eager", "torch_compile", "jax_xla")
ITERATIONS = 6
EVERY = 2
"""Iterations from one checkpoint to the next."""
COMMON = ("precision=float64", "device=cpu", f"checkpoint.every_iterations={EVERY}", "checkpoint.keep=100")

CARTPOLE = "env=cartpole backend=gymnasium "
MASKED = "env=cartpole_masked backend=gymnasium "
BREAKOUT = "env=breakout backend=envpool "
DEEP_SEA = "env=deep_sea algorithm.features=32 algorithm.warm_up_iterations=3 "
NORMALISED = "ppo.norm_obs=true ppo.norm_reward=true "
TWO_DEVICES = "devices=2 ppo.shards=2 "
ON_HOST: dict[str, tuple[str, int, int]] = {
    "mlp": (CARTPOLE + "network=mlp", 4, 32),
    "mlp, layer norm, relu": (CARTPOLE + "network=mlp network.layer_norm=true network.activation=relu", 4, 32),
    "wide_mlp, action masks": ("env=tic_tac_toe backend=envpool", 16, 16),
    "nature_cnn": (BREAKOUT, 4, 16),
    "impala_cnn": (BREAKOUT + "network=impala_cnn", 4, 8),
    "combined": ("env.id=sights:Sights-v0 backend=gymnasium network=combined", 4, 16),
    "lstm": (MASKED, 8, 32),
    "gru": (MASKED + "network=gru", 8, 32),
    "lstm_cnn": (BREAKOUT + "network=lstm_cnn", 4, 8),
    "trxl": ("env=proof_of_memory backend=gymnasium network=trxl", 4, 32),
    "trxl, learned": (MASKED + "network=trxl network.positions=learned network.layers=2", 4, 16),
    "rnd, vectors": (DEEP_SEA + "backend=gymnasium", 4, 32),
    "rnd, images": (
        "env=montezuma_revenge backend=envpool algorithm=rnd network=rnd_cnn "
        "algorithm.features=32 algorithm.warm_up_iterations=2",
        4,
        8,
    ),
    "normalisation, actions of floats": ("env=hopper backend=envpool", 2, 128),
    "pettingzoo": ("env=pong_two_players backend=pettingzoo", 4, 8),
    "switches": (
        CARTPOLE + NORMALISED + "env.kwargs={max_episode_steps:20} ppo.bootstrap_truncated=false ppo.mask_resets=false "
        "ppo.target_kl=0.01 ppo.clip_vloss=false ppo.norm_adv=false ppo.weight_decay=0.01 "
        "ppo.final_ent_coef=0.0 ppo.anneal_timesteps=512",
        4,
        32,
    ),
    "two devices": (CARTPOLE + NORMALISED + TWO_DEVICES, 4, 32),
    "two devices, lstm": (MASKED + TWO_DEVICES + "ppo.norm_adv_by_shard=true", 8, 32),
    "two devices, rnd": (DEEP_SEA + TWO_DEVICES + "backend=gymnasium", 4, 32),
}
"""Overrides, environments and steps of a rollout, by name; each in all frameworks."""
IN_PROGRAM: dict[str, tuple[str, int, int]] = {
    "mlp": ("env=cartpole backend=device", 8, 32),
    "num_seeds": ("env=cartpole backend=device num_seeds=3", 4, 32),
    "grid": ("env=cartpole backend=device grid={ppo.learning_rate:[1e-3,2.5e-4]}", 4, 32),
    "acrobot": ("env=acrobot backend=device", 4, 32),
    "minatar_cnn": ("env=minatar_breakout backend=device", 8, 16),
    "action masks": ("env=tic_tac_toe backend=device", 16, 16),
    "lstm": ("env=cartpole_masked backend=device", 8, 32),
    "rnd": (DEEP_SEA + "backend=device", 4, 32),
    "normalisation, actions of floats": ("env=pendulum backend=device", 4, 128),
    "time limits": ("env=proof_of_memory backend=device", 4, 32),
    "two devices": ("env=cartpole backend=device " + NORMALISED + TWO_DEVICES, 4, 32),
}
"""The same for environments in a JAX program."""


class Case(NamedTuple):
    """One command; the first of its words is the framework."""

    name: str
    words: tuple[str, ...]


def _case(name: str, framework: str, words: str, num_envs: int, num_steps: int) -> Case:
    sizes = (f"ppo.num_envs={num_envs}", f"ppo.num_steps={num_steps}", "ppo.num_minibatches=2")
    steps = f"total_timesteps={ITERATIONS * num_envs * num_steps}"
    return Case(name, (f"framework={framework}", *COMMON, *sizes, steps, *words.split()))


CASES = [
    *(_case(name, framework, *rest) for name, rest in ON_HOST.items() for framework in FRAMEWORKS),
    *(_case(f"program: {name}", "jax_xla", *rest) for name, rest in IN_PROGRAM.items()),
]
"""The cases of `lockstep`."""
SHORT = " total_timesteps=4096 checkpoint.every_iterations=3"
SHORT_RUNS = {
    "env=cartpole backend=gymnasium" + SHORT: FRAMEWORKS,
    "env=cartpole backend=envpool" + SHORT: FRAMEWORKS,
    "env=cartpole backend=device" + SHORT: FRAMEWORKS[-1:],
    "env=cartpole backend=device num_seeds=4" + SHORT: FRAMEWORKS[-1:],
    "env=hopper backend=envpool ppo.num_steps=256 total_timesteps=2048 checkpoint.every_iterations=3": FRAMEWORKS,
    "env=breakout backend=envpool total_timesteps=6144 checkpoint.every_iterations=3": FRAMEWORKS,
}
RUNS = [
    Case(words, (f"framework={framework}", *words.split()))
    for words, frameworks in SHORT_RUNS.items()
    for framework in frameworks
]
"""The cases of `same`: six iterations or more, with a checkpoint in between."""
