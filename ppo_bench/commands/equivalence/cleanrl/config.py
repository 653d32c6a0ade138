"""The configuration of a comparison with a script, and the command line of the script that follows from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore

from ppo_bench.commands.equivalence.cleanrl.scripts import SCRIPTS
from ppo_bench.commands.programs import require_no_run
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.configuration.load import load_config
from ppo_bench.configuration.schema import RootSchema
from ppo_bench.envs.make import make_env
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.array_specs import initial_arrays
from ppo_bench.runners.base import TrainingSpec

PPO_ARGUMENTS = (
    *("learning_rate", "num_envs", "num_steps", "anneal_lr", "gamma", "gae_lambda", "num_minibatches"),
    *("update_epochs", "norm_adv", "clip_coef", "clip_vloss", "ent_coef", "vf_coef", "max_grad_norm", "target_kl"),
)
"""Arguments of CleanRL's that have the same name in the group `ppo`."""
RND_ARGUMENTS = ("int_coef", "ext_coef", "int_gamma", "update_proportion")
"""Arguments of CleanRL's that have the same name in the group `algorithm`."""


@dataclass
class AgainstSchema(RootSchema):
    """The keys of conf/against.yaml."""

    against: str
    iterations: int
    arguments: list[str]


ConfigStore.instance().store("AgainstSchema", AgainstSchema)


def schema(config: Config) -> AgainstSchema:
    """The root of a comparison's configuration."""
    assert isinstance(config.root, AgainstSchema)
    return config.root


def script_path(config: Config) -> Path:
    """The script's file."""
    return Path(schema(config).against).expanduser().resolve()


def load(overrides: Sequence[str]) -> Config:
    """The configuration of either side, whose environments never restart, as CleanRL's do not."""
    config = load_config([*overrides, "checkpoint.every_iterations=1_000_000"], "against")
    root, script = schema(config), script_path(config)
    if not script.is_file():
        raise ConfigError(
            f"against={root.against}: the file is missing; name a script in a copy of CleanRL's repository"
        )
    spec = SCRIPTS.get(script.stem)
    if spec is None:
        raise ConfigError(f"against={script.name}: it is not known here; there are {', '.join(SCRIPTS)}")
    if spec.logs and "charts/learning_rate" not in script.read_text(encoding="utf-8"):
        raise ConfigError(f"against={script}: it does not log charts/learning_rate, as CleanRL's scripts do")
    if config.ppo.mask_resets and not spec.masks_resets:
        raise ConfigError("ppo.mask_resets=true: this script learns from reset steps, too; leave it out")
    if not 1 <= root.iterations <= config.num_iterations:
        raise ConfigError(f"iterations={root.iterations}: must lie between 1 and {config.num_iterations}")
    require_no_run(config)
    return config


def initial_state(config: Config) -> tuple[TrainingSpec, Arrays]:
    """What is trained, and the arrays that the training begins with."""
    with closing(make_env(config.backend, config.task)) as env:
        training_spec = config.training_spec(env)
        return training_spec, initial_arrays(training_spec, config.root.seed)


def arguments_of(script: Path, config: Config) -> list[str]:
    """Words for the arguments of `script` that `config` determines. Raises `ConfigError` if it declares none."""
    text = script.read_text(encoding="utf-8")
    fields = re.search(r"^class Args:\n(.*?)^\S", text, re.MULTILINE | re.DOTALL)
    parsed = [name.replace("-", "_") for name in re.findall(r"parser\.add_argument\(\"--([\w-]+)\"", text)]
    declared = re.findall(r"^    (\w+): ", fields[1], re.MULTILINE) if fields else parsed
    if not declared:
        raise ConfigError(f"against={script}: it has no `class Args`, as CleanRL's scripts have")
    words, values = [], _values(config) | {"vf_coef": config.ppo.vf_coef * SCRIPTS[script.stem].vf_coef}
    for name in declared:
        flag, value = name.replace("_", "-"), values.get(name)
        if isinstance(value, bool) and fields:
            words.append(f"--{flag}" if value else f"--no-{flag}")
        elif value is not None:
            words += [f"--{flag}", str(value)]
    return words


def _values(config: Config) -> dict[str, Any]:
    """Values of arguments, by their names in scripts; null ones are left out."""
    ppo, algorithm, network = config.ppo, config.algorithm, config.resolved["network"]
    return {
        "seed": config.root.seed,
        "env_id": _env_id(config.task.id),
        "total_timesteps": config.root.total_timesteps,
        "cuda": False,
        **{name: getattr(ppo, name) for name in PPO_ARGUMENTS},
        "local_num_envs": ppo.num_envs // ppo.shards,
        **{name: getattr(algorithm, name, None) for name in RND_ARGUMENTS},
        "num_iterations_obs_norm_init": algorithm.num_warmup_rollouts,
        "init_lr": ppo.learning_rate,
        "final_lr": ppo.final_learning_rate if ppo.anneal_lr else ppo.learning_rate,
        "init_ent_coef": ppo.ent_coef,
        "final_ent_coef": ppo.ent_coef if ppo.final_ent_coef is None else ppo.final_ent_coef,
        "anneal_steps": ppo.anneal_timesteps or config.root.total_timesteps,
        "trxl_num_layers": network.get("layers"),
        "trxl_num_heads": network.get("heads"),
        "trxl_dim": network.get("dim"),
        "trxl_memory_length": network.get("memory", 0) + 1,
        "trxl_positional_encoding": network.get("positions", "").replace("none", ""),
    }


def _env_id(name: str) -> str:
    """The environment's name in a script."""
    name = re.sub("(.*)Easy-v0", lambda procgen: procgen[1].lower(), name.rpartition(":")[2])
    name = re.sub("atari/(.*)-v", r"\1_v", name)
    return name.replace("ProofOfMemory", "ProofofMemory")
