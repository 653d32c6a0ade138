"""The scripts that can be compared, and what is particular to each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ppo_bench.commands.equivalence.cleanrl import parameter_names as names

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

    modules: names.Modules
    """Its modules, by those here."""
    patches: tuple[str, ...] = ()
    """Modules of this package with patches for few scripts."""
    losses: Mapping[str, str] = field(default_factory=lambda: LOSSES)
    """The script's variable of each loss, read when gradients are clipped."""
    in_jax: bool = False
    """Whether it learns with JAX, and not with PyTorch."""
    masks_resets: bool = True
    """Whether `ppo.mask_resets=true` can be patched into it."""
    vf_coef: float = 1.0
    """Its `--vf-coef` of `ppo.vf_coef`; half where its value loss is not halved."""
    logs: bool = True
    """Whether it logs charts/learning_rate at the end of each iteration, as LeanRL's do not."""
    is_distributed: bool = False
    """Whether several processes share its training, one for each of `ppo.shards`."""


SCRIPTS = {
    "ppo": ScriptSpec(names.CLASSIC),
    "ppo_continuous_action": ScriptSpec(names.CONTINUOUS),
    "ppo_continuous_action_torchcompile": ScriptSpec(names.CONTINUOUS, logs=False),
    "ppo_atari": ScriptSpec(names.SHARED),
    "ppo_atari_multigpu": ScriptSpec(names.SHARED, is_distributed=True),
    "ppo_atari_envpool": ScriptSpec(names.SHARED, ("envpool_compat",)),
    "ppo_atari_envpool_torchcompile": ScriptSpec(names.SHARED, ("envpool_compat",), logs=False),
    "ppo_atari_envpool_xla_jax": ScriptSpec(names.FLAX, in_jax=True),
    "ppo_atari_envpool_xla_jax_scan": ScriptSpec(names.FLAX, in_jax=True),
    "ppo_atari_lstm": ScriptSpec(names.LSTM),
    "ppo_pettingzoo_ma_atari": ScriptSpec(names.SHARED, ("pettingzoo_compat",)),
    "ppo_procgen": ScriptSpec(names.SHARED, ("envpool_compat",)),
    "ppo_rnd_envpool": ScriptSpec(
        names.RND,
        ("rnd",),
        losses=LOSSES
        | {"value_loss": "ext_v_loss", "intrinsic_value_loss": "int_v_loss", "forward_loss": "forward_loss"},
        masks_resets=False,
    ),
    "ppo_trxl": ScriptSpec(
        names.TRANSFORMER,
        ("trxl",),
        losses={"policy_loss": "pg_loss", "entropy": "entropy_loss"},  # others are computed later, or otherwise
        vf_coef=0.5,
    ),
}
"""All scripts by name: CleanRL's, and two of LeanRL's."""
