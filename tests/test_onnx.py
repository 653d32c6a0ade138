"""Policies outside of ppo_bench: as an ONNX file in onnxruntime, and as a module of plain PyTorch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_allclose

from ppo_bench.commands.export.__main__ import main
from ppo_bench.common.cli import exit_code
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.runners import checkpoint
from ppo_bench.runs.play import load_agent
from ppo_bench.runs.run_config import load_run
from tests.evaluations import SMALL
from tests.training import trained

STEPS = 12
POLICIES = {
    "continuous actions, normalised observations": ["env=inverted_pendulum", "backend=gymnasium"],
    "images of bytes": ["env=breakout", "backend=gymnasium"],
    "an LSTM": ["env=cartpole", "backend=gymnasium", "network=lstm"],
    "a transformer": ["env=cartpole", "backend=gymnasium", "network=trxl", "network.dim=8", "network.memory=5"],
}
PLAIN = """
import sys
import numpy as np, torch
from safetensors.torch import load_file
from torch import nn

arrays, obs = load_file(sys.argv[1]), torch.from_numpy(np.load(sys.argv[2]))
trunk = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
    nn.Conv2d(64, 64, 3), nn.ReLU())
hidden, actor = nn.Sequential(nn.Linear(3136, 512), nn.ReLU()), nn.Linear(512, 4)
layers = [trunk[0], trunk[2], trunk[4], hidden[0], actor]
for layer, name in zip(layers, ["trunk.0", "trunk.1", "trunk.2", "trunk.3", "actor.0"]):
    weight = arrays[f"params.{name}.weight"]
    layer.weight.data = weight.permute(0, 3, 1, 2) if weight.ndim == 4 else weight
    layer.bias.data = arrays[f"params.{name}.bias"]
logits = actor(hidden(trunk(obs / 255).permute(0, 2, 3, 1).flatten(1)))
assert "ppo_bench" not in sys.modules
np.save(sys.argv[3], logits.detach().numpy())
"""
"""A program of PyTorch alone that loads Breakout's policy; it flattens images as height, width, channels."""


def played(run: Path, steps: int = STEPS) -> list[tuple[np.ndarray, np.ndarray, Any, Any, Any]]:
    """Observations, episode-start flags, the carry before, the decision and the carry after, for each step of three
    games."""
    config, saved = load_run(run, {}), checkpoint.load(checkpoint.find(run))
    env = to_vector_env(make_env(config.backend, config.task.with_num_envs(3)))
    found = []
    try:
        agent = load_agent(config, saved, env, greedy=True, seed=1)
        carry: Any = agent.carry(3)
        policy_input, episode_start = env.reset([1, 2, 3]), np.ones(3, bool)
        for t in range(steps):
            decision, after = agent.decide(t, policy_input, episode_start, carry)
            found.append((policy_input.obs.copy(), episode_start, carry, decision, after))
            step = env.step(decision.actions)
            policy_input, episode_start, carry = step.policy_input, step.terminated | step.truncated, after
    finally:
        env.close()
    return found


@pytest.mark.parametrize(
    "policy", ["an LSTM", *(pytest.param(name, marks=pytest.mark.slow) for name in POLICIES if name != "an LSTM")]
)
def test_onnxruntime_computes_what_the_policy_does(policy: str, tmp_path: Path) -> None:
    run = trained(tmp_path, *POLICIES[policy], *SMALL)
    assert exit_code(main, [str(run), "--onnx", "--out", str(tmp_path / "export")]) == 0
    session = onnxruntime.InferenceSession(tmp_path / "export" / "policy.onnx")
    for obs, episode_start, carry, decision, after in played(run):
        given = {"obs": obs, "start": episode_start.astype(np.float32)}
        given |= {f"carry.{name}": array for name, array in carry.items()}
        names = [each.name for each in session.get_inputs()]
        found = session.run(None, {name: given[name] for name in names})
        outputs = [*decision.policy_outputs, decision.values]
        for one, other in zip(found, [*outputs, *after.values()], strict=True):
            assert one.shape == other.shape
        for one, other in zip(found, outputs, strict=False):
            assert_allclose(one, other, atol=1e-5)
        for one, other in zip(found[len(outputs) :], after.values(), strict=True):
            assert_allclose(one, other, atol=1e-4)  # a transformer's memory is standardised, which magnifies rounding


@pytest.mark.slow
def test_plain_pytorch_computes_what_the_policy_does(tmp_path: Path) -> None:
    run = trained(tmp_path, *POLICIES["images of bytes"], *SMALL)
    arrays = checkpoint.find(run) / "arrays.safetensors"
    steps = played(run, steps=4)
    np.save(tmp_path / "obs.npy", np.concatenate([obs for obs, *_ in steps]))
    files = [str(arrays), str(tmp_path / "obs.npy"), str(tmp_path / "logits.npy")]
    subprocess.run([sys.executable, "-c", PLAIN, *files], check=True, cwd=tmp_path)
    found = np.load(tmp_path / "logits.npy")
    expected = np.concatenate([decision.policy_outputs[0] for *_, decision, _ in steps])
    assert_allclose(found, expected, atol=1e-6)
    assert (found.argmax(-1) == np.concatenate([decision.actions for *_, decision, _ in steps])).all()
