"""A user-defined algorithm and network train, resume and agree in every framework."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from ppo_bench.envs.base import EnvStep, PolicyInput, ResetResult
from ppo_bench.envs.dynamics.cartpole import CartPole
from ppo_bench.envs.dynamics.env import DynamicsEnv
from ppo_bench.envs.jax.host import JaxVectorEnv
from ppo_bench.mathematics import distributions
from ppo_bench.mathematics.arrays import PERSISTENT_ROLES, ArrayRole, Arrays, select_roles
from ppo_bench.networks.network import mask_logits
from ppo_bench.networks.torch.ops import TorchOps
from ppo_bench.runners.array_specs import array_specs
from tests.runners import ACTING, problem_for, runner_for
from tests.scenes import Ends, RandomScenes
from tests.seams import LEVELLED, NETWORKS, SMALL, ours, remembering

PRECISE = ["precision=float64", "ppo.norm_obs=true", "ppo.norm_reward=true"]


def played(framework: str, env: Any, overrides: Sequence[str]) -> tuple[Arrays, list[dict[str, float]]]:
    """Arrays and rows after three iterations, whose environments restart after the second."""
    runner = runner_for(framework, problem_for(env, 10, [*SMALL, *overrides]))
    state, rows = runner.init(3), []
    for iteration in (1, 2, 3):
        state, metrics, _ = runner.iterate(state)
        rows.append(metrics)
        if iteration == 2:
            state = runner.restart_envs(state, 2)
    arrays = runner.export(state)
    runner.close()
    return arrays, rows


@functools.cache
def played_eagerly(network: str) -> tuple[Arrays, list[dict[str, float]]]:
    return played("torch_eager", JaxVectorEnv(DynamicsEnv(CartPole(), 4)), [*PRECISE, *ours(network)])


@pytest.mark.parametrize(
    ("framework", "network"),
    [(framework, network) for framework in ("jax_xla", "in a program") for network in NETWORKS],
)
def test_every_framework_learns_the_same_on_the_host_and_in_a_program(framework: str, network: str) -> None:
    expected, expected_rows = played_eagerly(network)
    in_program = framework == "in a program"
    env = DynamicsEnv(CartPole(), 4) if in_program else JaxVectorEnv(DynamicsEnv(CartPole(), 4))
    found, rows = played("jax_xla" if in_program else framework, env, [*PRECISE, *ours(network)])
    assert [list(row) for row in rows] == [list(row) for row in expected_rows]
    for row, expected_row in zip(rows, expected_rows, strict=True):
        assert_allclose(list(row.values()), list(expected_row.values()), rtol=1e-8, atol=1e-12)
    names = {name for name in expected if not (in_program and name.startswith("envs."))}
    assert set(found) == names
    for name in names:
        assert found[name].dtype == expected[name].dtype, name
        assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-10, err_msg=name)


def test_what_was_added_learns_is_counted_or_stays_as_its_kind_says() -> None:
    before = runner_for("torch_eager", problem_for(JaxVectorEnv(DynamicsEnv(CartPole(), 4)), 10, LEVELLED))
    begun = before.export(before.init(3))
    arrays, rows = played("torch_eager", JaxVectorEnv(DynamicsEnv(CartPole(), 4)), LEVELLED)
    assert begun["params.level"] == 0.0
    assert arrays["params.level"] > 0.0
    assert arrays["adam.mean.level"] != 0.0
    assert_array_equal(arrays["frozen.projection"], begun["frozen.projection"])
    assert_allclose(begun["frozen.projection"] @ begun["frozen.projection"].T, np.eye(2), atol=1e-6)
    value_mask = sum(32 * (1.0 - row["masked_fraction"]) for row in rows)
    assert arrays["statistics.transitions"] == rows[-1]["transitions"] == value_mask
    without, _ = played("torch_eager", JaxVectorEnv(DynamicsEnv(CartPole(), 4)), [])
    assert not {name for name in without if "level" in name or name.startswith(("frozen.", "statistics."))}


@pytest.mark.parametrize("framework", ["torch_eager", "jax_xla", "in a program"])
def test_all_that_is_declared_is_exported_but_a_rollouts_memory(framework: str) -> None:
    """And from a program what belongs to its environments."""
    in_program = framework == "in a program"
    env: Any = DynamicsEnv(CartPole(), 4) if in_program else JaxVectorEnv(DynamicsEnv(CartPole(), 4))
    spec = problem_for(env, 10, [*SMALL, *ours("AveragingMlp")])
    runner: Any = runner_for("jax_xla" if in_program else framework, spec)
    exported = runner.export(runner.init(3))
    kinds = PERSISTENT_ROLES if in_program else (*PERSISTENT_ROLES, ArrayRole.ENVIRONMENT)
    declared = {array.name: array for array in select_roles(array_specs(spec), *kinds)}
    assert set(exported) == set(declared)
    for name, array in exported.items():
        assert (str(array.dtype), array.shape) == (declared[name].dtype, declared[name].shape), name
    assert {array.name for array in select_roles(array_specs(spec), ArrayRole.FROZEN)} == {"frozen.projection"}
    learnt = {f"params.{p.name}" for p in spec.parameters}
    assert {array.name for array in select_roles(array_specs(spec), ArrayRole.PARAMETER)} == learnt
    runner.close()


# --- Memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("framework", ACTING)
def test_memory_begins_anew_with_an_episode_and_not_before_its_final_observation_is_valued(
    framework: str, network: str
) -> None:
    overrides = [*SMALL, *remembering(network), "ppo.num_steps=6", "precision=float64"]
    spec = problem_for(Ends(2, False, False), 10, overrides)
    runner: Any = runner_for(framework, spec)
    begun = runner.init(3)
    params = {name.removeprefix("params."): array for name, array in runner.export(begun).items()}
    state, _, _ = runner.iterate(begun)
    assert_allclose(np.exp(params["fading"]), 1.0)  # half of what it remembers, half of what it sees
    memory = {name: np.array(array) for name, array in state.learner.rollout_buffer.items()}
    obs = memory["obs"]
    # Steps 0 to 2 are an episode, 3 shows its final observation and only resets, 4 to 6 are the next episode.
    seen = [obs[0] / 2, *[np.zeros_like(obs[0])] * 6]
    for t in range(1, 7):
        seen[t] = obs[t] / 2 + (0.0 if t == 4 else seen[t - 1] / 2)
    hidden = np.tanh(np.stack(seen) @ params["critic.0.weight"].T + params["critic.0.bias"])
    values = hidden @ params["critic.1.weight"].T + params["critic.1.bias"]
    assert_allclose(memory["values"], values[..., 0], rtol=1e-12)
    # The values of the observations after the rollout leave the memory as it was: the next rollout sees them again.
    assert_allclose(runner.export(state)["envs.carry.mean"], seen[5], rtol=1e-12)
    state, _, _ = runner.iterate(state)
    again = np.asarray(state.learner.rollout_buffer["obs"][0])
    assert_array_equal(again, obs[6])
    if network == "AveragingMlp":
        assert_allclose(np.asarray(state.learner.rollout_buffer["carry.mean"][0]), seen[5], rtol=1e-12)


def test_learning_from_sequences_also_learns_through_the_memory() -> None:
    """By finite differences over a sequence with a reset in it."""
    network = problem_for(RandomScenes(4, False, False), 10, [*SMALL, *remembering("AveragingSequencesMlp")]).network
    rng, ops = np.random.default_rng(1), TorchOps(torch.float64, torch.float64)
    params = {p.name: torch.from_numpy(rng.normal(size=p.shape)) for p in network.parameters}
    obs, carry = torch.from_numpy(rng.normal(size=(5, 2, 5))), {"mean": torch.from_numpy(rng.normal(size=(2, 5)))}
    start = torch.tensor([[0, 0], [0, 0], [0, 1], [0, 0], [0, 0]]).double()

    def loss(fading: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        policy_outputs, values, _ = network.forward(ops, params | {"fading": fading}, obs, {"mean": before}, start)
        return torch.square(policy_outputs[0]).sum() + torch.square(values).sum()

    fading, before = params["fading"].requires_grad_(), carry["mean"].requires_grad_()
    of_fading, of_carry = torch.autograd.grad(loss(fading, before), (fading, before))
    with torch.no_grad():
        expected = (loss(fading + 1e-6, before) - loss(fading - 1e-6, before)) / 2e-6
        assert_allclose(of_fading, expected, rtol=1e-7)
        moved = torch.zeros_like(before)
        moved[1, 2] = 1e-6
        expected = (loss(fading, before + moved) - loss(fading, before - moved)) / 2e-6
        assert_allclose(of_carry[1, 2], expected, rtol=1e-7)


@pytest.mark.parametrize("framework", ACTING)
def test_environments_that_are_carried_keep_their_memory(framework: str) -> None:
    class GoesOn(RandomScenes):
        def reset(self, seeds: Sequence[int]) -> PolicyInput:
            return super().reset([1] * 4)

    def runner() -> Any:
        return runner_for(framework, problem_for(GoesOn(4, False, False), 10, [*SMALL, *ours(NETWORKS[0])]))

    first, second = runner(), runner()
    state, _, _ = first.iterate(first.init(3))
    arrays = first.export(state)
    assert arrays["envs.carry.mean"].any()
    second.init(3)
    second.iterate(second.init(3))  # its environments stand where those of the first do
    expected, found = (r.export(r.iterate(s)[0]) for r, s in ((first, state), (second, second.restore(arrays, True))))
    for name in expected:
        assert_array_equal(found[name], expected[name], err_msg=name)


# --- Rules ------------------------------------------------------------------------------------------------------------


class Rules(RandomScenes):
    """Of three choices one is illegal, another after every step; every second environment passes every third step."""

    masks_actions = True

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.t, self.taken, self.illegal = 0, 0, 0
        return PolicyInput(super().reset(seeds).obs, self._policy_mask(), self._action_mask())

    def step(self, actions: np.ndarray) -> EnvStep:
        self.illegal += int((~self._action_mask()[np.arange(self.num_envs), actions]).sum())
        self.taken += self.num_envs
        self.t += 1
        return super().step(actions)._replace(policy_mask=self._policy_mask(), action_mask=self._action_mask())

    def _policy_mask(self) -> np.ndarray:
        return (np.arange(self.num_envs) % 2 == 0) | (self.t % 3 != 0)

    def _action_mask(self) -> np.ndarray:
        action_mask = np.arange(3) != (self.t + np.arange(self.num_envs)[:, None]) % 3
        return action_mask | ~self._policy_mask()[:, None]


def test_illegal_actions_are_never_taken_and_passes_are_not_learnt_from() -> None:
    found = []
    for name in ACTING:
        env = Rules(4, False, False)
        runner = runner_for(name, problem_for(env, 10, [*SMALL, "ppo.num_steps=32", "precision=float64"]))
        state, rows = runner.init(3), []
        for _ in range(3):
            state, metrics, _ = runner.iterate(state)
            rows.append(list(metrics.values()))
        found.append((runner.export(state), rows))
        assert env.taken == 384
        assert env.illegal == 0
    (arrays, rows), (expected, expected_rows) = found
    assert_allclose(rows, expected_rows, rtol=1e-8, atol=1e-12)
    for array in ("envs.acts", "envs.legal", "params.actor.0.weight"):
        assert_allclose(arrays[array], expected[array], rtol=1e-8, err_msg=array)


def test_of_illegal_choices_neither_probability_nor_entropy_nor_gradient_is_left() -> None:
    logits = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64, requires_grad=True)
    policy_outputs = mask_logits(torch, (logits,), torch.tensor([[True, False, True]]))
    entropy = distributions.categorical_entropy(torch, policy_outputs)
    share = 1.0 / (1.0 + np.exp(2.0))  # of the first of two logits that are 2 apart
    assert_allclose(entropy.item(), -share * np.log(share) - (1 - share) * np.log(1 - share), rtol=1e-14)
    log_prob = distributions.categorical_log_prob(torch, policy_outputs, torch.tensor([0]))
    assert_allclose(log_prob.item(), np.log(share), rtol=1e-14)
    (gradient,) = torch.autograd.grad((entropy + log_prob).sum(), logits)
    assert gradient[0, 1] == 0.0
    assert torch.isfinite(gradient).all()
    assert_allclose(gradient.sum(), 0.0, atol=1e-15)


class Ruled(DynamicsEnv):
    """CartPole in which only a push to the right is legal after every second step."""

    masks_actions = True

    def reset(self, seeds: Sequence[int]) -> ResetResult:
        result = super().reset(seeds)
        return ResetResult(
            self.step, result.state, result.policy_input._replace(action_mask=self._action_mask(result.state))
        )

    def step(self, state: Any, actions: Any) -> Any:
        state, step = super().step(state, actions)
        return state, step._replace(action_mask=self._action_mask(state))

    def _action_mask(self, state: Any) -> Any:
        return jnp.stack([state.steps % 2 == 0, jnp.ones_like(state.done)], -1)


def test_rules_in_a_program_are_those_on_the_host() -> None:
    expected, expected_rows = played("torch_eager", JaxVectorEnv(Ruled(CartPole(), 4)), PRECISE)
    found, rows = played("jax_xla", Ruled(CartPole(), 4), PRECISE)
    free, _ = played("jax_xla", DynamicsEnv(CartPole(), 4), PRECISE)
    assert_allclose([list(row.values()) for row in rows], [list(row.values()) for row in expected_rows], rtol=1e-8)
    weight = "params.actor.0.weight"
    assert_allclose(found[weight], expected[weight], rtol=1e-8)
    assert abs(free[weight] - found[weight]).max() > 1e-5
