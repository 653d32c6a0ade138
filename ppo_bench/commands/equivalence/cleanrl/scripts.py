"""The scripts that can be compared, and what is particular to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ppo_bench.commands.equivalence.cleanrl import parameter_names as names
from ppo_bench.common.errors import ConfigError
from ppo_bench.configuration.config import Config
from ppo_bench.mathematics.arrays import Arrays

LOSSES = {
    "policy_loss": "pg_loss",
    "value_loss": "v_loss",
    "entropy": "entropy_loss",
    "old_approx_kl": "old_approx_kl",
    "approx_kl": "approx_kl",
}


@dataclass(frozen=True)
class ScriptSpec:
    """What is particular to a script."""

    names: Callable[[Arrays], list[names.Name]]
    """Names of all parameters, from the arrays that a training begins with."""
    patches: tuple[str, ...] = ()
    """Modules of this package with patches that few scripts need."""
    losses: Mapping[str, str] = field(default_factory=lambda: LOSSES)
    """The script's variable of each loss, read when gradients are clipped."""
    in_jax: bool = False
    """Whether it learns with JAX, and not with PyTorch."""
    normalizes: bool = False
    """Whether each of its environments normalises observations and rewards."""
    masks_resets: bool = True
    """Whether `ppo.mask_resets=true` can be patched into it."""
    vf_coef: float = 1.0
    """Its `--vf-coef` of `ppo.vf_coef`; half where its value loss is not halved."""

    @property
    def logs(self) -> bool:
        """Whether it logs charts/learning_rate at the end of each iteration."""
        return "leanrl" not in self.patches

    @property
    def is_distributed(self) -> bool:
        """Whether several processes share its training, one for each of `ppo.shards`."""
        return "multigpu" in self.patches


SCRIPTS = {
    "ppo": ScriptSpec(names.classic),
    "ppo_continuous_action": ScriptSpec(names.continuous, normalizes=True),
    "ppo_continuous_action_torchcompile": ScriptSpec(names.continuous, ("leanrl",), normalizes=True),
    "ppo_atari": ScriptSpec(names.nature),
    "ppo_atari_multigpu": ScriptSpec(names.nature, ("multigpu",)),
    "ppo_atari_envpool": ScriptSpec(names.nature, ("envpool_compat",)),
    "ppo_atari_envpool_torchcompile": ScriptSpec(names.nature, ("envpool_compat", "leanrl")),
    "ppo_atari_envpool_xla_jax": ScriptSpec(names.flax, in_jax=True),
    "ppo_atari_envpool_xla_jax_scan": ScriptSpec(names.flax, in_jax=True),
    "ppo_atari_lstm": ScriptSpec(names.lstm),
    "ppo_pettingzoo_ma_atari": ScriptSpec(names.nature, ("pettingzoo_compat",)),
    "ppo_procgen": ScriptSpec(names.impala, ("procgen_compat",)),
    "ppo_rnd_envpool": ScriptSpec(
        names.rnd,
        ("rnd",),
        losses=LOSSES
        | {"value_loss": "ext_v_loss", "intrinsic_value_loss": "int_v_loss", "forward_loss": "forward_loss"},
        masks_resets=False,
    ),
    "ppo_trxl": ScriptSpec(
        names.transformer,
        ("trxl",),
        losses={"policy_loss": "pg_loss", "entropy": "entropy_loss"},  # others are computed later, or otherwise
        vf_coef=0.5,
    ),
}
"""All scripts by name: CleanRL's, and two of LeanRL's."""


def require_known(script: Path, config: Config) -> None:
    """Raise `ConfigError` unless `script` is one of `SCRIPTS`, and the configuration one that it can train."""
    spec = SCRIPTS.get(script.stem)
    if spec is None:
        raise ConfigError(f"against={script.name}: it is not known here; there are {', '.join(SCRIPTS)}")
    if spec.logs and "charts/learning_rate" not in script.read_text(encoding="utf-8"):
        raise ConfigError(f"against={script}: it does not log charts/learning_rate, as CleanRL's scripts do")
    if config.ppo.mask_resets and not spec.masks_resets:
        raise ConfigError("ppo.mask_resets=true: this script learns from reset steps, too; leave it out")


def require_same_names(script: str, initial: Arrays) -> None:
    """Raise `ConfigError` if the script has other parameters than the initial arrays."""
    ours = {name.partition(".")[2] for name in initial if name.startswith(("params.", "frozen."))}
    if unpaired := ours ^ {name.ours for name in SCRIPTS[script].names(initial)}:
        raise ConfigError(f"against={script}.py: {min(unpaired)} is on one side alone; use the network of its preset")
