"""Random changes of command lines, and runs that they start."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path

from tests.faults import finish
from tests.refusals import assert_untrained

SMALL = ["env=cartpole", "backend=gymnasium", "device=cpu", "total_timesteps=64", "ppo.num_envs=2", "ppo.num_steps=16"]
SMALL += ["ppo.num_minibatches=2", "ppo.update_epochs=1"]

KEYS = [
    *("seed", "total_timesteps", "precision", "device", "rerun", "outputs", "name", "framework", "backend", "network"),
    *("env", "ppo", "experiment", "env.id", "env.name", "env.ids", "env.atari", "env.kwargs", "env.wrappers"),
    *("checkpoint", "checkpoint.every_iterations", "checkpoint.keep", "checkpoint.load", "framework.name"),
    *("framework._target_", "backend._target_", "backend.vectorization", "network._target_", "ppo.num_envs"),
    *("ppo.num_steps", "ppo.learning_rate", "ppo.gamma", "ppo.gae_lambda", "ppo.num_minibatches", "ppo.update_epochs"),
    *("ppo.clip_coef", "ppo.ent_coef", "ppo.vf_coef", "ppo.max_grad_norm", "ppo.target_kl", "ppo.norm_adv"),
    *("ppo.anneal_lr", "ppo.obs_clip", "ppo.reward_clip", "hydra.run.dir", "hydra/launcher", "hydra.nope", "nope"),
]
PLAIN = """
0 -1 1 2 4 64 0.5 3.5 1e-3 torch_compile jax_xla envpool acrobot float64 1e400 -1e400 nan inf 1e-320
9999999999999999999999999999999999999999 2147483648 true null ''
"""
FOREIGN = "abc été 日本 \u202e 😀"
GRAMMAR = """
a=b a,b [1,2] [] {a:1} {} {a:{b:[1]}} ${seed} ${nope} ${oc.env:HOME} ${oc.env:NOPE} ${ppo.num_envs} ${ $ % \\ ../x / .
range(1,3) choice(1,2) glob(*) [ ] { } ( ) ' " ??? ~ - -- a/b
"""
CODE = "os.system builtins.eval __import__('os') !!python/object:os.system"
VALUES = [*PLAIN.split(), "' '", *FOREIGN.split(), "a b", *GRAMMAR.split(), "\t", *CODE.split(), "x" * 5000]
WORDS = """
= + ~ ~seed +a ++a=1 +seed=1 ~ppo ~env.id ~nope a =1 -x --nope seed @ seed@x=1 +ppo@x=classic ppo@=classic
hydra/sweeper=nope --cfg \x00 é=1 a.b.c=1
"""
LONE = ["", *WORDS.split()]
PREFIXES = ["", "", "", "", "+", "++", "~"]


def mutated(rng: random.Random) -> list[str]:
    """A small valid configuration with one or two overrides at random."""
    overrides = list(SMALL)
    for _ in range(rng.choice([1, 1, 2])):
        if rng.random() < 0.15:
            overrides.append(rng.choice(LONE))
        else:
            key = rng.choice(KEYS)
            if rng.random() < 0.1:
                key = rng.choice([key.upper(), key[:-1], f"{key}.x", f" {key}", key.replace(".", "/"), key + "é"])
            overrides.append(f"{rng.choice(PREFIXES)}{key}={rng.choice(VALUES)}")
    return [override for override in overrides if "\x00" not in override]  # which no program can be given


def run_mutated(overrides: list[str], cwd: Path) -> None:
    """Run a configuration in the empty folder `cwd`. Fails if what comes of it is not what was promised."""
    try:
        run = finish(overrides, cwd, seconds=60)
    except subprocess.TimeoutExpired:  # 10 ** 9 steps are as valid as 64
        return
    lines = run.stderr.splitlines()
    assert "Traceback" not in run.stderr, f"{overrides}: {run.stderr}"
    if run.returncode == 2:
        said = lines[-1:] if lines[0].startswith("usage: ") else lines  # Hydra's parser shows its options first
        assert len(said) == 1, f"{overrides}: {run.stderr}"
        assert said[0].startswith("ppo_bench: "), f"{overrides}: {run.stderr}"
        assert_untrained(cwd)
    elif run.returncode == 1:
        assert "learning diverged" in lines[-1] or "out of memory" in lines[-1], f"{overrides}: {run.stderr}"
    else:
        assert run.returncode == 0, f"{overrides}: exit {run.returncode}: {run.stderr}"
        result = json.loads((cwd / run.stdout.splitlines()[-1] / "result.json").read_text())
        assert result["status"] == "complete", overrides
