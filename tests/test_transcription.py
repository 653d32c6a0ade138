"""One iteration of a runner, against a plain transcription of PPO that shares only its random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ppo_bench import noise
from ppo_bench.algorithms.base import Hyperparameters
from ppo_bench.arrays import Arrays
from ppo_bench.envs.base import Step
from ppo_bench.runners.base import Problem
from tests.runners import problem_for, runner_for
from tests.scenes import RandomScenes, Recorder

SEED = 3


def network_of(problem: Problem, weights: Arrays) -> nn.ModuleDict:
    """The problem's network as ordinary torch modules in float64, with `weights` in place."""
    modules = nn.ModuleDict()
    for part in ("trunk", "actor", "critic"):
        layers: list[nn.Module] = []
        names = sorted({n.split(".")[2] for n in weights if n.startswith(f"params.{part}.") and "log_std" not in n})
        for index in names:
            weight = torch.from_numpy(weights[f"params.{part}.{index}.weight"]).double()
            bias = torch.from_numpy(weights[f"params.{part}.{index}.bias"]).double()
            layer: nn.Module
            if weight.ndim == 4:
                stride = {8: 4, 4: 2, 3: 1}[weight.shape[1]]
                layer = nn.Conv2d(weight.shape[3], weight.shape[0], weight.shape[1], stride, dtype=torch.float64)
                weight = weight.permute(0, 3, 1, 2)
            else:
                if layers and isinstance(layers[-2], nn.Conv2d):
                    layers.append(ToHeightWidthChannel())
                layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=torch.float64)
            layer.load_state_dict({"weight": weight, "bias": bias})
            layers += [layer, nn.ReLU() if part == "trunk" else nn.Tanh()]
        modules[part] = nn.Sequential(*(layers if part == "trunk" else layers[:-1]))
    if "params.actor.log_std" in weights:
        log_std = nn.Parameter(torch.from_numpy(weights["params.actor.log_std"]).double().clone())
        modules["log_std"] = nn.ParameterList([log_std])
    return modules


class ToHeightWidthChannel(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


def distribution_and_value(modules: nn.ModuleDict, obs: Tensor) -> tuple[torch.distributions.Distribution, Tensor]:
    hidden = modules["trunk"](obs / 255.0 if obs.ndim == 4 else obs)
    value = modules["critic"](hidden).squeeze(-1)
    output = modules["actor"](hidden)
    if "log_std" not in modules:
        return torch.distributions.Categorical(logits=output), value
    normal = torch.distributions.Normal(output, modules["log_std"][0].exp())  # type: ignore[index]
    return torch.distributions.Independent(normal, 1), value


def advantages_by_sum(rewards: np.ndarray, values: np.ndarray, steps: list[Step], hp: Hyperparameters) -> np.ndarray:
    """GAE as its definition, a sum over what follows within the episode (Schulman et al. 2016, eq. 16)."""
    advantages = np.zeros_like(rewards)
    for env in range(rewards.shape[1]):
        for start in range(rewards.shape[0]):
            weight = 1.0
            for t in range(start, rewards.shape[0]):
                ends = steps[t].terminated[env] or (steps[t].truncated[env] and not hp.bootstrap_truncated)
                target = rewards[t, env] + (0.0 if ends else hp.gamma * values[t + 1, env])
                advantages[start, env] += weight * (target - values[t, env])
                weight *= hp.gamma * hp.gae_lambda
                if steps[t].terminated[env] or steps[t].truncated[env]:
                    break
    return advantages


def one_iteration(problem: Problem, weights: Arrays, record: Recorder) -> nn.ModuleDict:
    """The network after PPO's first iteration on the recorded rollout."""
    hp, modules = problem.ppo, network_of(problem, weights)
    optimizer = torch.optim.Adam(modules.parameters(), lr=hp.learning_rate, eps=hp.adam_eps)
    obs = torch.from_numpy(np.stack(record.obs)).double()
    actions = torch.from_numpy(np.stack(record.actions)).double()
    with torch.no_grad():
        distribution, values = distribution_and_value(modules, obs.flatten(0, 1))
        values = values.view(obs.shape[:2])
        old_log_probs = torch.stack(
            [distribution_and_value(modules, o)[0].log_prob(a) for o, a in zip(obs, actions, strict=False)]
        )
    done = np.stack([step.terminated | step.truncated for step in record.steps])
    real = np.ones(done.shape)
    if hp.mask_resets:
        real[1:] = ~done[:-1]
    rewards = np.stack([step.reward for step in record.steps]).astype(np.float64)
    advantages = torch.from_numpy(advantages_by_sum(rewards, values.numpy(), record.steps, hp))
    returns = advantages + values[:-1]
    flat = [x.flatten(0, 1) for x in (obs[:-1], actions, old_log_probs, values[:-1], advantages, returns)]
    keep = torch.from_numpy(real.astype(bool)).flatten()
    permutations = noise.permutations(
        np,
        np.array([SEED], np.int32),
        np.array([1], np.int32),
        np.arange(hp.update_epochs, dtype=np.int32),
        np.arange(hp.batch_size, dtype=np.int32),
    )
    for epoch in range(hp.update_epochs):
        for rows in permutations[epoch].reshape(hp.num_minibatches, -1):
            real_rows = torch.from_numpy(rows[keep.numpy()[rows]])
            o, a, old_log_prob, old_value, advantage, target = (x[real_rows] for x in flat)
            distribution, value = distribution_and_value(modules, o)
            ratio = (distribution.log_prob(a) - old_log_prob).exp()
            if hp.norm_adv:
                advantage = (advantage - advantage.mean()) / (advantage.std(unbiased=False) + 1e-8)
            surrogate = torch.min(ratio * advantage, ratio.clamp(1 - hp.clip_coef, 1 + hp.clip_coef) * advantage)
            error = (value - target) ** 2
            if hp.clip_vloss:
                clipped = old_value + (value - old_value).clamp(-hp.clip_coef, hp.clip_coef)
                error = torch.max(error, (clipped - target) ** 2)
            bonus = distribution.entropy().mean()
            loss = -surrogate.mean() + hp.vf_coef * 0.5 * error.mean() - hp.ent_coef * bonus
            optimizer.zero_grad()
            loss.backward()
            norm = torch.cat([p.grad.flatten() for p in modules.parameters() if p.grad is not None]).norm()
            if norm > hp.max_grad_norm:
                for p in modules.parameters():
                    assert p.grad is not None
                    p.grad *= hp.max_grad_norm / norm
            optimizer.step()
    return modules


@pytest.mark.parametrize(
    ("pixels", "continuous", "overrides"),
    [
        (False, False, []),
        (False, True, []),
        (True, False, ["ppo.num_steps=16"]),
        (False, False, ["ppo.bootstrap_truncated=false", "ppo.mask_resets=false", "ppo.norm_adv=false"]),
        (False, True, ["ppo.clip_vloss=false", "ppo.max_grad_norm=100.0", "ppo.anneal_lr=false"]),
        (False, False, ["network=mlp", "network.hidden_sizes=[32]", "ppo.gamma=0.9", "ppo.gae_lambda=1.0"]),
    ],
)
def test_an_iteration_equals_a_plain_transcription(pixels: bool, continuous: bool, overrides: list[str]) -> None:
    """In one framework; tests/test_one_update.py compares the others with it."""
    record = Recorder(RandomScenes(4, pixels, continuous))
    fast = ["precision=float64", "ppo.num_steps=32", "ppo.learning_rate=3e-3"]
    problem = problem_for(record, 10, [*fast, *overrides])
    runner = runner_for("torch_eager", problem)
    state = runner.init(SEED)
    before = runner.export(state)
    state, _, _ = runner.step(state)
    after = runner.export(state)
    expected = parameters_of(one_iteration(problem, before, record))
    assert set(expected) == {p.name for p in problem.network.parameters}
    for name, array in expected.items():
        distance = np.linalg.norm(after[f"params.{name}"] - array) / np.linalg.norm(array)
        assert distance < 1e-10, name
        assert np.linalg.norm(before[f"params.{name}"] - array) > 0.0, name


def parameters_of(modules: nn.ModuleDict) -> dict[str, np.ndarray]:
    """The arrays of `network_of`'s modules in the neutral layout."""
    arrays: dict[str, Tensor] = {}
    for part in ("trunk", "actor", "critic"):
        layers = [m for m in modules[part].modules() if isinstance(m, nn.Conv2d | nn.Linear)]
        for index, layer in enumerate(layers):
            weights = layer.state_dict()
            weight = weights["weight"].permute(0, 2, 3, 1) if isinstance(layer, nn.Conv2d) else weights["weight"]
            arrays |= {f"{part}.{index}.weight": weight, f"{part}.{index}.bias": weights["bias"]}
    if "log_std" in modules:
        arrays["actor.log_std"] = modules["log_std"][0]  # type: ignore[index]
    return {name: array.detach().numpy() for name, array in arrays.items()}
