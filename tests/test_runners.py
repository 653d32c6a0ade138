"""One iteration of a runner, against a plain transcription of PPO that shares only its random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from ppo_bench import noise
from ppo_bench.config import load_config
from ppo_bench.envs.base import Step, VectorEnv
from ppo_bench.errors import ConfigError
from ppo_bench.runners.base import Arrays, Hyperparameters, Problem
from tests.probes import Endless
from tests.runners import FRAMEWORKS, problem_for, runner_for

SEED = 3


class Recorder:
    """A `VectorEnv` that keeps what passed through it."""

    def __init__(self, env: VectorEnv) -> None:
        self.env = env
        self.num_envs, self.observation_space, self.action_space = env.num_envs, env.observation_space, env.action_space
        self.obs: list[np.ndarray] = []
        self.steps: list[Step] = []
        self.actions: list[np.ndarray] = []

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self.obs.append(self.env.reset(seeds).copy())
        return self.obs[-1]

    def step(self, actions: np.ndarray) -> Step:
        step = Step(*(array.copy() for array in self.env.step(actions)))
        self.actions.append(np.array(actions))
        self.steps.append(step)
        self.obs.append(step.obs)
        return step

    def close(self) -> None:
        self.env.close()


class RandomScenes:
    """Random observations and rewards, with terminations, truncations and their resets at random."""

    def __init__(self, num_envs: int, pixels: bool, continuous: bool) -> None:
        self.num_envs = num_envs
        self.pixels = pixels
        shape = (4, 44, 44) if pixels else (5,)
        self.observation_space = (
            spaces.Box(0, 255, shape, np.uint8) if pixels else spaces.Box(-np.inf, np.inf, shape, np.float32)
        )
        self.action_space: spaces.Box | spaces.Discrete = (
            spaces.Box(-np.inf, np.inf, (2,), np.float32) if continuous else spaces.Discrete(3)
        )

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        self.rng = np.random.default_rng(list(seeds))
        self.done = np.zeros(self.num_envs, bool)
        return self._obs()

    def step(self, actions: np.ndarray) -> Step:
        rewards = np.where(self.done, 0.0, self.rng.normal(size=self.num_envs)).astype(np.float32)
        terminated = (self.rng.random(self.num_envs) < 0.15) & ~self.done
        truncated = (self.rng.random(self.num_envs) < 0.15) & ~self.done & ~terminated
        self.done = terminated | truncated
        return Step(self._obs(), rewards, terminated, truncated, self.done, rewards)

    def _obs(self) -> np.ndarray:
        shape = (self.num_envs, *self.observation_space.shape)
        if self.pixels:
            return self.rng.integers(0, 256, shape, np.uint8)
        return self.rng.normal(size=shape).astype(np.float32)

    def close(self) -> None:
        pass


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


def cartpole_problem(*overrides: str) -> Problem:
    config = load_config(["backend=gymnasium", *overrides])
    return problem_for(config.backend.make(config.task), 10, overrides)


def after_iterations(framework: str, problem: Problem, count: int) -> Arrays:
    runner = runner_for(framework, problem)
    state = runner.init(SEED)
    for _ in range(count):
        state, _, _ = runner.step(state)
    return runner.export(state)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_same_seed_gives_the_same_parameters_bit_for_bit(framework: str) -> None:
    first, second = (after_iterations(framework, cartpole_problem(), 3) for _ in range(2))
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_tiny_target_kl_stops_after_the_first_epoch(framework: str) -> None:
    stopped = after_iterations(framework, cartpole_problem("ppo.target_kl=1e-12"), 1)
    one_epoch = after_iterations(framework, cartpole_problem("ppo.update_epochs=1"), 1)
    assert all(np.array_equal(stopped[name], one_epoch[name]) for name in stopped)
    assert stopped["adam.step"] == 4


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_minibatch_that_diverges_is_not_averaged_away(framework: str) -> None:
    runner = runner_for(framework, cartpole_problem("ppo.learning_rate=1e30"))
    _, metrics, _ = runner.step(runner.init(SEED))
    assert not math.isfinite(metrics.policy_loss)
    assert not math.isfinite(metrics.gradient_norm)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_large_target_kl_changes_nothing(framework: str) -> None:
    unhindered, limited = (after_iterations(framework, cartpole_problem(*o), 2) for o in ((), ("ppo.target_kl=1e6",)))
    assert all(np.array_equal(unhindered[name], limited[name]) for name in unhindered)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_rollout_and_the_update_agree_on_log_probabilities(framework: str) -> None:
    problem = cartpole_problem("ppo.learning_rate=1e-30", "precision=float64")
    runner = runner_for(framework, problem)
    _, metrics, _ = runner.step(runner.init(SEED))
    assert abs(metrics.old_approx_kl) < 1e-14
    assert metrics.clip_fraction == 0.0


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_learning_rate_falls_linearly(framework: str) -> None:
    problem = cartpole_problem("ppo.learning_rate=1.0e-3")
    runner = runner_for(framework, problem)
    state = runner.init(SEED)
    rates = []
    for _ in range(10):
        state, metrics, _ = runner.step(state)
        rates.append(metrics.learning_rate)
    np.testing.assert_allclose(rates, np.linspace(1e-3, 1e-4, 10), rtol=1e-12)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_exported_state_goes_on_as_the_one_it_came_from(framework: str) -> None:
    runner = runner_for(framework, cartpole_problem())
    state, _, _ = runner.step(runner.init(SEED))
    arrays = {name: array.copy() for name, array in runner.export(state).items()}
    state, _, _ = runner.step(runner.restart(state, 1))
    twin = runner_for(framework, cartpole_problem())
    twin_state, _, _ = twin.step(twin.restore(arrays))
    expected, found = runner.export(state), twin.export(twin_state)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_checkpoint_of_another_network_is_refused(framework: str) -> None:
    small = cartpole_problem("network=mlp", "network.hidden_sizes=[8]")
    runner = runner_for(framework, cartpole_problem())
    with pytest.raises(ConfigError, match=r"actor\.0\.weight is \[8, 4\] in the checkpoint and \[64, 4\]"):
        runner.restore(after_iterations(framework, small, 0))
    deeper = cartpole_problem("network=mlp", "network.hidden_sizes=[64, 2, 2]")
    with pytest.raises(ConfigError, match=r"has no params\.actor\.3\.weight"):
        runner_for(framework, deeper).restore(
            after_iterations(framework, cartpole_problem("network=mlp", "network.hidden_sizes=[64, 2]"), 0)
        )


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_values_without_variance_leave_the_explained_variance_undefined(framework: str) -> None:
    env = Endless(num_envs=1)
    problem = problem_for(env, 1, ["ppo.num_steps=4", "ppo.gae_lambda=0.0", "ppo.gamma=0.0"])
    runner = runner_for(framework, problem)
    _, metrics, _ = runner.step(runner.init(SEED))
    assert math.isnan(metrics.explained_variance)


def relative_distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b)) / max(float(np.linalg.norm(b)), 1e-30)


def assert_same_learner(found: Arrays, expected: Arrays, tolerance: float) -> None:
    assert set(found) == set(expected)
    for name in expected:
        if name.startswith(("params.", "adam.mean.")):
            assert relative_distance(found[name], expected[name]) < tolerance, name


PAIRS = [(a, b) for a in FRAMEWORKS for b in FRAMEWORKS if a != b]


@pytest.mark.parametrize(("writer", "reader"), PAIRS)
def test_a_checkpoint_of_one_framework_goes_on_in_another(writer: str, reader: str) -> None:
    precise = "precision=float64"
    source = runner_for(writer, cartpole_problem(precise))
    state = source.init(SEED)
    for _ in range(3):
        state, _, _ = source.step(state)
    arrays = source.export(state)
    state, metrics, episodes = source.step(source.restart(state, 3))
    target = runner_for(reader, cartpole_problem(precise))
    target_state, target_metrics, target_episodes = target.step(target.restore(arrays))
    assert target_episodes == episodes
    assert_same_learner(target.export(target_state), source.export(state), 1e-10)
    np.testing.assert_allclose(target_metrics, metrics, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("framework", [name for name in FRAMEWORKS if name != "torch_eager"])
@pytest.mark.parametrize(("pixels", "continuous"), [(False, False), (False, True), (True, False)])
def test_frameworks_take_the_same_actions_and_learn_the_same_in_float32(
    framework: str, pixels: bool, continuous: bool
) -> None:
    records = [Recorder(RandomScenes(4, pixels, continuous)) for _ in range(2)]
    arrays = []
    for name, record in zip(("torch_eager", framework), records, strict=True):
        problem = problem_for(record, 10, ["ppo.num_steps=32"])
        arrays.append(after_iterations(name, problem, 2))
    taken, expected = (np.stack(record.actions) for record in reversed(records))
    np.testing.assert_allclose(taken, expected, rtol=0, atol=1e-4 if continuous else 0)
    mine, theirs = (np.concatenate([a[name].ravel() for name in arrays[0] if name[:7] == "params."]) for a in arrays)
    # Adam divides a gradient by its own size: where it is nearly 0, rounding decides the direction of a whole step.
    assert relative_distance(theirs, mine) < 2e-3


def test_torch_compile_does_not_compile_again_after_the_first_iteration() -> None:
    runner = runner_for("torch_compile", cartpole_problem())
    state, _, _ = runner.step(runner.init(SEED))
    with torch._dynamo.config.patch(error_on_recompile=True), torch.compiler.set_stance("fail_on_recompile"):
        for _ in range(3):
            state, _, _ = runner.step(state)
