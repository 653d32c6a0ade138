"""Identity of an experiment: the part of its configuration that determines what is trained, in a canonical form.

Two commands that train otherwise have different identities, and so different folders. Those that are known here to
train the same have the same one: keys that only affect location or speed are left out or set to their defaults, and of
several values with the same effect, such as 500,000 and 500,001 steps of whole iterations, one canonical value is used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ppo_bench.envs.envpool_options import OBSERVES_CONTACTS

NOT_TRAINED = (
    *("seed", "num_seeds", "grid", "name", "outputs", "rerun", "devices"),
    *("tracker", "trackers", "video", "evaluation"),
)
"""Root keys that do not distinguish experiments."""
PLAIN = {"_target_": "ppo_bench.algorithms.ppo.Ppo", "name": "ppo"}
"""The algorithm of older runs, whose run.json names none."""
UNUSED: dict[str, dict[str, Any]] = {
    "norm_obs": {"obs_clip": 10.0},
    "norm_reward": {"reward_clip": 10.0},
    "norm_adv": {"norm_adv_by_shard": None},
    "anneal_lr": {"final_learning_rate": None},
}
"""Keys of `ppo` without effect if the key in front is false, and their canonical values; None leaves a key out."""
AUTO = {"_target_": "ppo_bench.networks.spec.Auto", "hidden_sizes": [64, 64], "activation": "tanh"}
REVISION = 1
"""Number of the latest correction that changes trainings, in the identities that it concerns.

1: the derivative of `leaky_relu` at 0 in JAX; uniform initial weights and biases of `impala_cnn` and `trxl`; several
frames of images in dictionaries, for which `combined` has convolutions.
"""
NETWORKS = "ppo_bench.networks.spec."
VECTORS = re.compile(
    r"(CartPole|Acrobot|MountainCar|MountainCarContinuous|Pendulum|Ant|HalfCheetah|Hopper|Humanoid|HumanoidStandup"
    r"|InvertedPendulum|InvertedDoublePendulum|Pusher|Reacher|Swimmer|Walker2d|AcrobotSwingup|BallInCupCatch"
    r"|CartpoleBalance|CheetahRun)-v\d+|(dm_control/|brax-).*"
)
"""Pattern of the ids whose observations are known to be vectors, for which `network=auto` is an MLP."""
ENVPOOL = ("envpool", "envpool_xla")
PROCGEN_MODES = ("Easy-v0", "Hard-v0", "Extreme-v0", "Memory-v0", "Exploration-v0")
"""Endings of the ids of Procgen's games on `ENVPOOL`; elsewhere ids with them are of other environments."""


def identity(config: Mapping[str, Any], loaded: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The identity of a configuration of plain values, such as run.json has.

    `loaded` is the digest of the arrays that the run starts from, `code` that of the user's own modules. Nothing else
    here depends on the machine, so that a cluster's login node and its compute nodes find the same folder.
    """
    trained = _without(config, *NOT_TRAINED)
    ppo, env = trained["ppo"], _env(config)
    batch = ppo["num_envs"] * ppo["num_steps"]
    trained["total_timesteps"] = roundest(config["total_timesteps"] // batch * batch, batch)
    trained["ppo"] = _hyperparameters(ppo)
    every = (config.get("checkpoint") or {}).get("every_iterations")
    trained["checkpoint"] = {"every_iterations": every} | ({"load": loaded} if loaded else {})
    trained["env"] = env
    trained["network"] = _network(config["network"], env, config["backend"]["name"])
    trained["framework"] = _without(config["framework"], "compile_cache")
    # The number of threads or processes that step environments does not affect the results.
    at_defaults = {"num_threads": 0, "vectorization": "sync"}
    trained["backend"] = {key: at_defaults.get(key, value) for key, value in config["backend"].items()}
    if trained.get("algorithm") == PLAIN:
        del trained["algorithm"]
    if _is_revised(trained):
        trained["revision"] = REVISION
    if code:
        trained["code"] = code
    return trained


def roundest(low: int, count: int) -> int:
    """The number with the most trailing zeros in `range(low, low + count)`, as people would type it."""
    power = 10 ** len(str(low + count))
    while -(-low // power) * power >= low + count:
        power //= 10
    return -(-low // power) * power


def env_of(config: Mapping[str, Any]) -> tuple[str, str]:
    """Name and id of a configuration's environment; an `env.id` equal to the id in its file changes neither."""
    env = config["env"]
    own = env["ids"].get(config["backend"]["name"])
    return (env["name"], own) if env.get("id") in (None, own) else (env["id"], env["id"])


def _hyperparameters(ppo: Mapping[str, Any]) -> dict[str, Any]:
    """The hyperparameters, those without effect at their canonical values."""
    unused = {name: value for key, names in UNUSED.items() if not ppo.get(key) for name, value in names.items()}
    return {key: value for key, value in {**ppo, **unused}.items() if key not in unused or value is not None}


def _env(config: Mapping[str, Any]) -> dict[str, Any]:
    """The environment without the other ids and names that its file offers."""
    env = config["env"]
    name, env_id = env_of(config)
    on_envpool = config["backend"]["name"] in ENVPOOL
    contacts = {"post_constraint": True} if on_envpool and env_id in OBSERVES_CONTACTS else {}  # once they were 0
    known = ("name", "ids", "id", "game", "mode", "atari", "kwargs", "wrappers", "info")
    return {
        "name": name,
        "id": env_id,
        "num_envs": config["ppo"]["num_envs"],
        "atari": env.get("atari"),
        "kwargs": contacts | (env.get("kwargs") or {}),
        "wrappers": list(env.get("wrappers") or []),
        **{key: value for key, value in env.items() if key not in known},
    }


def _is_revised(trained: Mapping[str, Any]) -> bool:
    """Whether the training of an identity is another one since `REVISION`, in one of the frameworks or in all."""
    network, env = trained["network"], {**trained["env"], "kwargs": {}}
    kind = network["_target_"].rpartition(".")[2]
    chosen = _chosen_by_auto(env, trained["backend"]["name"]) if kind == "Auto" else kind
    return (
        chosen in (None, "ImpalaCnn", "Trxl", "Combined")  # None: unknown, and so maybe one of these
        or network.get("activation") == "leaky_relu"
        or trained.get("algorithm", PLAIN).get("name") == "rnd"
    )


def _without(tree: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if key not in names}


def _network(network: Mapping[str, Any], env: Mapping[str, Any], backend: str) -> Mapping[str, Any]:
    """`network=auto` in place of `network` where auto is known to choose the same for this environment."""
    chosen, kind = _chosen_by_auto(env, backend), network["_target_"].removeprefix(NETWORKS)
    if chosen is None or kind not in (chosen, "Auto") or not set(network) <= set(AUTO):
        return network
    return AUTO | ({key: network[key] for key in ("hidden_sizes", "activation")} if chosen == "Mlp" else {})


def _chosen_by_auto(env: Mapping[str, Any], backend: str) -> str | None:
    """The class of network that `network=auto` chooses; None if that is unknown without making the environment."""
    if env["wrappers"] or (env["kwargs"] and not env["atari"]):
        return None
    if env["atari"]:
        return "NatureCnn"
    if env["id"].startswith("minatar-"):
        return "MinAtarCnn"
    if backend in ENVPOOL and env["id"].endswith(PROCGEN_MODES):
        return "ImpalaCnn"
    return "Mlp" if VECTORS.fullmatch(env["id"]) else None
