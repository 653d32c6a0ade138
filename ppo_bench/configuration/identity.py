"""Identity of an experiment: what determines what is trained. Its hash is part of the run folder's name.

It is the composed configuration without the keys whose fields are `not_hashed`, and without `added_field` keys at their
defaults, and three digests: of the checkpoint that the run starts from, of the user's own code, and the revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

REVISION = 2
"""Number of the latest correction that changes trainings.

1: the derivative of `leaky_relu` at 0 in JAX; uniform initial weights and biases of `impala_cnn` and `trxl`; several
frames of images in dictionaries, for which `combined` has convolutions.
2: every run has a revision, and its identity the values that it was given, in no other spelling.
"""


def hashed(node: DictConfig) -> dict[str, Any]:
    """The part of a composed node with a schema that determines what is trained, as plain values."""
    cls = OmegaConf.get_type(node)
    about: dict[Any, Any] = {field.name: field.metadata for field in fields(cls)} if is_dataclass(cls) else {}
    plain: Any = OmegaConf.to_container(node, resolve=True)
    return {
        key: hashed(node[key]) if isinstance(plain[key], dict) else plain[key]
        for key in plain
        if "not_hashed" not in about.get(key, ()) and plain[key] != about.get(key, {}).get("added_field", ...)
    }


def identity(hashed: Mapping[str, Any], env_id: str, loaded: str | None, code: str | None) -> dict[str, Any]:
    """The identity of a configuration's `hashed` part.

    `env_id` is the environment's id on the chosen backend, `loaded` the digest of the arrays that the run starts from,
    and `code` that of the user's own modules. None of them depends on the machine, so that a cluster's login node and
    its compute nodes find the same folder.
    """
    framework = hashed["framework"]
    if framework["name"] == "jax_xla":  # a key that earlier runs had, whose folders stay
        framework = {"iterations_per_call": 1, **framework}
    return {
        **hashed,
        "framework": framework,
        "env": {"id": env_id, **hashed["env"], "kwargs": hashed["env"].get("kwargs") or {}},
        "checkpoint": hashed["checkpoint"] | ({"load": loaded} if loaded else {}),
        "revision": REVISION,
        **({"code": code} if code else {}),
    }
