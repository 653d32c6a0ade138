"""Two samples of random play: the test of Kolmogorov and Smirnov, and what it tells apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import special, stats

from ppo_bench.commands.check import main as check
from ppo_bench.common.cli import exit_code
from ppo_bench.envs.base import EnvStep, PolicyInput, Task
from ppo_bench.envs.device import DeviceBackend
from ppo_bench.envs.distribution import Episodes, compare_distributions, kolmogorov_smirnov, random_episodes
from ppo_bench.envs.gymnasium import GymnasiumBackend, GymnasiumEnv

NUM_ENVS = 20


def cartpole() -> GymnasiumEnv:
    return GymnasiumBackend("gymnasium", "sync").make(Task("cartpole", "CartPole-v1", NUM_ENVS))


class SkipsSteps(GymnasiumEnv):
    """Every fourth step is two with the same actions, of which the first goes unseen."""

    steps = 0

    def step(self, actions: np.ndarray) -> EnvStep:
        self.steps += 1
        if self.steps % 4:
            return super().step(actions)
        first = super().step(actions)
        return first if (first.terminated | first.truncated).any() else super().step(actions)


def skipping() -> GymnasiumEnv:
    return SkipsSteps(Task("cartpole", "CartPole-v1", NUM_ENVS), "sync")


class Alternating:
    """Episodes of 2 and 20 steps in turn, in the first half of the environments, and of 20 in the others."""

    masks_actions = False

    def __init__(self) -> None:
        inner = cartpole()
        self.num_envs, self.observation_space, self.action_space = NUM_ENVS, inner.observation_space, inner.action_space
        inner.close()

    def reset(self, seeds: Sequence[int]) -> PolicyInput:
        self.short = np.arange(NUM_ENVS) < NUM_ENVS // 2
        self.length, self.time = np.where(self.short, 2, 20), np.zeros(NUM_ENVS, int)
        self.done = np.zeros(NUM_ENVS, bool)
        return PolicyInput(np.zeros((NUM_ENVS, 4), np.float32))

    def step(self, actions: np.ndarray) -> EnvStep:
        resets = self.done
        self.length = np.where(resets & self.short, 22 - self.length, self.length)
        self.time = np.where(resets, 0, self.time + 1)
        self.done = self.time == self.length
        reward = np.where(resets, 0, 1).astype(np.float32)
        return EnvStep(
            np.zeros((NUM_ENVS, 4), np.float32), reward, self.done, np.zeros_like(self.done), self.done, reward
        )

    def close(self) -> None:
        pass


def test_episodes_are_whole_and_as_many_of_each_environment() -> None:
    """The first 100 to finish would be nearly all of the short environments."""
    episodes = random_episodes(Alternating(), 100, seed=1)
    np.testing.assert_array_equal(episodes.returns, episodes.lengths)
    lengths, counts = np.unique(episodes.lengths, return_counts=True)
    assert dict(zip(lengths, counts, strict=True)) == {
        2: 30,
        20: 70,
    }  # 10 envs: 2, 20, 2, 20, 2; 10 envs: 20 five times


@pytest.mark.parametrize(("n", "m", "shift"), [(50, 80, 0.0), (200, 100, 0.3), (1000, 1000, 0.1), (30, 30, 5.0)])
def test_statistic_and_p_value_are_scipys(n: int, m: int, shift: float) -> None:
    rng = np.random.default_rng(n)
    a, b = np.round(rng.normal(size=n), 1), np.round(rng.normal(shift, size=m), 1)  # rounded: with ties
    distance, p_value = kolmogorov_smirnov(a, b)
    assert distance == pytest.approx(stats.ks_2samp(a, b).statistic, abs=1e-12)
    assert p_value == pytest.approx(special.kolmogorov(distance * np.sqrt(n * m / (n + m))), rel=1e-6, abs=1e-12)


def test_equal_samples_have_distance_0_and_probability_1() -> None:
    assert kolmogorov_smirnov(np.full(1000, -200.0), np.full(1000, -200.0)) == (0.0, 1.0)
    assert kolmogorov_smirnov(np.zeros(100), np.ones(100))[0] == 1.0


def test_false_alarms_are_as_rare_as_promised() -> None:
    rng, trials = np.random.default_rng(1), 2000
    alarms = sum(kolmogorov_smirnov(*rng.normal(size=(2, 200)))[1] < 0.05 for _ in range(trials))
    assert 0.02 * trials < alarms < 0.06 * trials  # asymptotic probabilities are a little too large


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (cartpole, True),
        (lambda: DeviceBackend("device").make(Task("cartpole", "CartPole-v1", NUM_ENVS)), True),
        (skipping, False),
    ],
)
def test_cartpole_is_the_same_and_one_that_skips_a_step_is_not(make: Callable[[], GymnasiumEnv], same: bool) -> None:
    findings = compare_distributions(make, cartpole, 600)
    assert [finding.holds for finding in findings] == [same, same]
    assert {name for name in Episodes._fields if name in findings[0].rule + findings[1].rule} == set(Episodes._fields)


def test_the_command_compares_with_gymnasium(capfd: pytest.CaptureFixture[str]) -> None:
    few = ["--num-steps=100", "--distribution"]
    assert exit_code(check, ["env=cartpole", "backend=device", "--num-episodes=100", *few]) == 0
    assert capfd.readouterr().out.count("as gymnasium's: mean ") == 2
    assert exit_code(check, ["env=minatar_breakout", *few]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "env=minatar_breakout names no environment" in err
