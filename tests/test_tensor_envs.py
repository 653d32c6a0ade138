"""Vector environments of tensors with same-step autoreset: their trainings are those of a plain transcription."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from ppo_bench.__main__ import main as train
from ppo_bench.commands.equivalence.__main__ import main as equivalence
from ppo_bench.commands.evaluate import main as evaluate
from ppo_bench.common.cli import exit_code
from ppo_bench.common.errors import ConfigError, RunError
from ppo_bench.configuration.load import load_config
from ppo_bench.envs.base import EnvStep, PolicyInput
from ppo_bench.envs.check import check_contract
from ppo_bench.envs.host import to_vector_env
from ppo_bench.envs.make import make_env
from ppo_bench.envs.tensors import TensorEnv
from ppo_bench.mathematics.arrays import Arrays
from ppo_bench.runners.base import Episode, TrainingSpec
from ppo_bench.runners.host import HostRunner
from ppo_bench.runners.same_step_envs import SameStepEnvs
from ppo_bench.runners.torch import TorchLearner
from ppo_bench.runs.play import play
from tests.refusals import assert_refused
from tests.runners import played, problem_for, runner_for
from tests.tensor_envs import Poles, TensorScenes
from tests.test_recordable import Checked
from tests.test_transcription import FORCES, OF_TRAINING, SEED, TOLERANCE, VECTOR, compared
from tests.training import rows, trained
from tests.transcribed_networks import NETWORKS
from tests.transcription import Ppo, moments

POLES = ("backend=tensors", "env.id=tests.tensor_envs:Poles", "env.name=poles", "device=cpu", "ppo.num_envs=8")
SMALL = ("precision=float64", "ppo.learning_rate=1e-2", "ppo.clip_coef=0.05", "ppo.num_steps=16")
NORMALIZED = ("ppo.norm_obs=true", "ppo.norm_reward=true", "ppo.obs_clip=1.5", "ppo.reward_clip=1.0")
CASES: dict[str, tuple[str, ...]] = {
    "plain": ("network=mlp", "network.hidden_sizes=[16,12]"),
    "normalized": ("network=mlp", "network.hidden_sizes=[16,12]", *NORMALIZED),
    "limits are ends": ("network=mlp", "network.hidden_sizes=[16,12]", "ppo.bootstrap_truncated=false"),
    "forces": ("network=mlp", "network.hidden_sizes=[16,12]"),
    "gru": ("network=gru", "network.hidden_sizes=[16,12]", "ppo.num_minibatches=2"),
}


class Recorded:
    """What scenes of tensors have recorded, as the transcription reads it."""

    def __init__(self, scenes: TensorScenes) -> None:
        self.num_envs, self.action_space = scenes.num_envs, scenes.single_action_space
        self.final = [final.numpy().astype(np.float64) for final in scenes.final]
        self.actions = [actions.numpy() for actions in scenes.actions]
        everyone, outputs = np.ones(scenes.num_envs, bool), 3 if isinstance(self.action_space, spaces.Discrete) else 2
        action_mask = np.ones((scenes.num_envs, outputs), bool)
        self.policy_inputs = [PolicyInput(obs.numpy(), everyone, action_mask) for obs in scenes.obs]
        arrays = zip(scenes.obs[1:], scenes.rewards, scenes.ends, strict=True)
        self.steps = [
            EnvStep(obs.numpy(), r.numpy(), first.numpy(), second.numpy(), (first | second).numpy(), r.numpy())
            for obs, r, (first, second) in arrays
        ]


class SameStep(Ppo):
    """The transcription, of episodes that begin in the step in which others end."""

    def steps_that_count(self, done: np.ndarray) -> np.ndarray:
        return np.ones_like(done)

    def starts(self, done: np.ndarray, value_mask: np.ndarray) -> np.ndarray:
        return np.concatenate([np.ones_like(done[:1]), done])

    def values_after_steps(self, values: np.ndarray, first: int) -> np.ndarray:
        """Where an episode ends, the value of its last observation, by a policy that still remembers the episode."""
        values, scenes = values.copy()[1:], self.scenes
        seen = np.stack([each.obs for each in scenes.policy_inputs[: first + len(values) + 1]]).astype(np.float64)
        statistics = moments(seen, np.ones(seen.shape[:2], bool))
        for t, env in np.argwhere([s.terminated | s.truncated for s in scenes.steps[first:][: len(values)]]):
            last = scenes.final[first + t]  # type: ignore[attr-defined]
            if self.hp.norm_obs:
                mean, var = statistics[first + t + 1]
                last = np.clip((last - mean) / np.sqrt(var + 1e-8), -self.hp.obs_clip, self.hp.obs_clip)
            going_on = torch.zeros(len(last), dtype=torch.bool)
            values[t, env] = self.policy(torch.from_numpy(last), self.memories[t + 1], going_on)[1][env].item()
        return values


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("framework", "case"),
    [
        *(("torch_eager", case) for case in CASES),
        pytest.param("torch_compile", "normalized", marks=pytest.mark.slow),
    ],
)
def test_iterations_equal_a_plain_transcription(framework: str, case: str) -> None:
    actions = FORCES if case == "forces" else spaces.Discrete(3)
    scenes = TensorScenes(4, actions)
    spec = problem_for(TensorEnv(scenes, "scenes"), OF_TRAINING, [*SMALL, *CASES[case]])

    def reference_for(_: Arrays) -> Ppo:
        recorded: Any = Recorded(scenes)
        policy = NETWORKS["gru" if case == "gru" else "mlp"](VECTOR, actions)
        return SameStep(policy, recorded, spec.ppo, OF_TRAINING, SEED)

    results, reference = compared(framework, spec, reference_for)
    assert max(result.of_all() for result in results) < TOLERANCE
    assert reference.clipped > 0
    assert reference.kept > 0


def test_a_run_is_trained_and_evaluated(tmp_path: Path) -> None:
    words = [*POLES, "framework=torch_eager", "network=gru", "ppo.num_steps=32", "checkpoint.every_iterations=5"]
    words += ["evaluation.every_iterations=5", "evaluation.episodes=6", "total_timesteps=2560", "ppo.norm_reward=true"]
    folder = trained(tmp_path / "whole", *words)
    evaluated = [row["evaluation_return_sampled"] for row in rows(folder) if row["evaluation_return_sampled"]]
    assert len(evaluated) == 2
    assert {row["masked_fraction"] for row in rows(folder)} == {0.0}
    lengths = [row["length"] for row in rows(folder, "episodes")]
    assert max(lengths) == 50
    assert exit_code(evaluate, [str(folder), "episodes=9", "num_envs=4"]) == 0


class AllOnes:
    """An `Agent` whose actions are all 1."""

    def carry(self, num_envs: int) -> dict[str, np.ndarray]:
        return {}

    def act(self, t: int, policy_input: PolicyInput, episode_start: np.ndarray, carry: Any) -> tuple[np.ndarray, Any]:
        np.testing.assert_array_equal(
            episode_start, np.zeros_like(episode_start) if t % 8 else np.ones_like(episode_start)
        )
        return np.ones(len(episode_start), np.int64), carry


def test_episodes_follow_each_other_without_a_step_between_them() -> None:
    """The time limit is below the length of a fall."""
    env = to_vector_env(TensorEnv(Poles(3, limit_steps=8), "poles"))
    episodes: list[Episode] = list(play(env, AllOnes(), 6, seed=1))  # type: ignore[arg-type]  # it acts as one
    assert [episode.length for episode in episodes] == [8] * 6
    assert [episode.episode_return for episode in episodes] == [8.0] * 6
    assert [episode.step for episode in episodes] == [24] * 3 + [48] * 3


def test_the_observed_components_are_those_of_final_observations_too() -> None:
    config = load_config([*POLES, "env.observe=[0,2]", "env.kwargs={limit_steps:3}", "framework=torch_eager"])
    env: Any = make_env(config.backend, config.task)
    finals = []
    both: list[Any] = [env, TensorEnv(Poles(8, limit_steps=3), "poles")]
    for each in both:
        state, _ = each.reset(torch, range(8))
        for _ in range(3):
            _, step = each.step(state, torch.zeros(8, dtype=torch.int64))
        assert step.truncated.all()
        finals.append(step.final_obs)
    assert torch.equal(finals[0], finals[1][:, [0, 2]])
    _, _, episodes = played(config.framework.runner(config.training_spec(env)), 1, 1, restart_after=0)
    assert {episode.length for episode in episodes} == {3}


def test_a_time_limit_without_a_final_observation_is_refused() -> None:
    words = ["ppo.num_steps=64"]
    env = TensorEnv(Poles(4, limit_steps=8, final_name=None), "poles")
    runner = runner_for("torch_eager", problem_for(env, 10, words))
    with pytest.raises(RunError, match="final_observation"):
        runner.iterate(runner.init(1))
    words.append("ppo.bootstrap_truncated=false")
    runner = runner_for("torch_eager", problem_for(env, 10, words))
    _, metrics, _ = runner.iterate(runner.init(1))
    assert np.isfinite(metrics["value_loss"])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["env.id=tests.tensor_envs:text"], "no attribute 'num_envs'"),
        (["env.id=tests.tensor_envs:nothing"], "module:factory"),
        (["env.id=tests.tensor_envs"], "module:factory"),
        (["env.kwargs={limit:3}"], "limit"),
        (["framework=jax_xla"], "made of PyTorch tensors: use framework=torch_eager"),
        (["algorithm=rnd"], "algorithm=rnd"),
        (["devices=2", "ppo.shards=2"], "devices=2"),
        (["env.wrappers=[{_target_:gymnasium.wrappers.TimeAware}]"], "env.wrappers"),
    ],
)
def test_a_wrong_configuration_is_one_line(words: list[str], named: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert_refused(train, [*POLES, *words], named, capfd)


@pytest.mark.parametrize(
    ("obs", "named"), [(np.zeros((4, 4), np.float32), "ndarray"), (torch.zeros(4, 3), "[4, 3], not a tensor [4, 4]")]
)
def test_observations_of_another_kind_are_refused(obs: Any, named: str) -> None:
    class Wrong(Poles):
        def step(self, actions: torch.Tensor) -> Any:
            return obs, *super().step(actions)[1:]

    runner = runner_for("torch_eager", problem_for(TensorEnv(Wrong(4), "wrong"), 10, []))
    with pytest.raises(RunError) as failure:
        runner.iterate(runner.init(1))
    assert named in str(failure.value)


def test_commands_that_need_reset_steps_say_so(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="same-step"):
        check_contract(lambda: TensorEnv(Poles(4), "poles"))
    assert exit_code(equivalence, [*POLES, "total_timesteps=2048"]) == 2
    assert "its environments cannot be recorded" in capfd.readouterr().err


@pytest.mark.parametrize("case", ["normalized", "gru"])
def test_a_gpu_can_record_the_policy_and_the_values_of_final_observations(case: str) -> None:
    """They neither wait for the device nor copy to the host, and recorded they train the same."""

    def spec() -> TrainingSpec:
        return problem_for(TensorEnv(TensorScenes(4), "scenes"), OF_TRAINING, [*SMALL, *CASES[case]])

    expected, expected_rows, _ = played(runner_for("torch_eager", spec()), 3, 2, restart_after=1)
    learner: Any = TorchLearner(spec(), 1)
    for name in ("_policy", "_values"):
        setattr(learner, name, Checked(getattr(learner, name)))
    stepped = SameStepEnvs(spec(), learner)
    found, metrics, _ = played(HostRunner(spec(), stepped, learner, stepped.rollout), 3, 2, 1)
    assert metrics == expected_rows
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    assert learner._policy.calls == 34
    assert 0 < learner._values.calls <= 32
