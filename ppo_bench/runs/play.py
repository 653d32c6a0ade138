"""Whole episodes by a policy without learning, the same in every framework."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ppo_bench.common.errors import RunError
from ppo_bench.configuration.config import Config
from ppo_bench.envs.base import PolicyInput, VectorEnv
from ppo_bench.envs.random_play import get_num_players, random_actions
from ppo_bench.mathematics import noise, normalize
from ppo_bench.mathematics.arrays import Arrays, Tree, load_arrays
from ppo_bench.mathematics.distributions import ActionBounds, Distribution, PolicyOutputs, action_bounds
from ppo_bench.mathematics.precision import PRECISIONS
from ppo_bench.networks.network import NetworkSpec, mask_logits
from ppo_bench.runners.array_specs import normalization_array_specs
from ppo_bench.runners.base import Episode, Policy
from ppo_bench.runners.checkpoint import Checkpoint
from ppo_bench.runners.episodes import accumulate_episodes, zero_totals

MAX_STEPS_WITHOUT_AN_END = 1_000_000
"""Number of steps of each environment after which `play` gives up if no episode that counts has ended."""


@dataclass(frozen=True)
class Decision:
    """A policy's decision for observations of `N` environments."""

    actions: np.ndarray
    """The environments' actions, `[N]` or `[N, A]`."""
    values: np.ndarray
    """The critic's estimates of returns `[N]`; with two streams of rewards as in RND `[N, 2]`. Their unit is that of
    the rewards in training, which a run may have clipped or scaled."""
    policy_outputs: PolicyOutputs
    """Parameters of the policy's distribution: `(logits [N, A],)`, or `(mean [N, A], log_std [A])`."""
    chosen: np.ndarray
    """The actions as the policy has chosen them: numbers from 0, or numbers before they are clipped or rescaled."""
    distribution: Distribution

    @property
    def log_probs(self) -> np.ndarray:
        """Logarithms of the probabilities of the `chosen` actions, `[N]`, or of their densities."""
        return np.asarray(self.distribution.log_prob(np, self.policy_outputs, self.chosen))

    @property
    def entropies(self) -> np.ndarray:
        """Entropies of the policy's distributions in nats, `[N]`."""
        return np.broadcast_to(self.distribution.entropy(np, self.policy_outputs), len(self.chosen))


@dataclass(frozen=True)
class Agent:
    """A policy with the normalisation of its observations and its choice of actions. It is immutable."""

    network: NetworkSpec
    policy: Policy
    obs_stats: normalize.RunningStats | None
    """Statistics that normalise observations; None leaves observations unchanged."""
    obs_clip: float
    precision: str
    greedy: bool
    """Take the likeliest action; false samples one, as in training."""
    seed: int
    """Seed of the samples."""
    bounds: ActionBounds | None = None
    """Bounds of the environment's actions; None if they are discrete."""

    def carry(self, num_envs: int) -> Arrays:
        """The network's carry before the first step in fresh environments, `[N, ...]`: all zeros."""
        dtype = PRECISIONS[self.precision].parameters
        return {array.name: np.zeros((num_envs, *array.shape), dtype) for array in self.network.carry}

    def act(self, t: int, policy_input: PolicyInput, episode_start: np.ndarray, carry: Tree) -> tuple[np.ndarray, Tree]:
        """The environments' actions `[N]` or `[N, A]` for the observations in `policy_input` after `t` steps, and the
        carry after this step.

        `episode_start [N]` bool says which rows forget their carry before the step.
        """
        decision, carry = self.decide(t, policy_input, episode_start, carry)
        return decision.actions, carry

    def decide(
        self, t: int, policy_input: PolicyInput, episode_start: np.ndarray, carry: Tree
    ) -> tuple[Decision, Tree]:
        """The decision for the observations in `policy_input`, and the carry, as of `act`."""
        obs = policy_input.obs
        if self.obs_stats:
            obs = normalize.normalize_observations(np, self.obs_stats, obs.astype(np.float64), self.obs_clip)
        policy_outputs, values, carry = self.policy(self.network.to_input_layout(obs), episode_start, carry)
        policy_outputs = mask_logits(np, policy_outputs, policy_input.action_mask)
        distribution = self.network.distribution
        first = policy_outputs[0]
        noise_of_step = np.zeros_like(first) if self.greedy else self._noise(t, len(obs)).astype(first.dtype)
        chosen = np.asarray(distribution.sample(np, policy_outputs, noise_of_step))
        actions = self.bounds.to_env_actions(np, chosen) if self.bounds else chosen
        return Decision(actions, values, policy_outputs, chosen, distribution), carry

    def _noise(self, t: int, num_envs: int) -> np.ndarray:
        """Noise `[N, A]` for the samples after `t` steps."""
        seed, iteration, step = (np.full(1, number, np.int32) for number in (self.seed, 0, t))
        envs, lanes = (np.arange(n, dtype=np.int32) for n in (num_envs, self.network.actions.action_dim))
        words = noise.action_words(np, seed, iteration, step, envs, lanes, noise.Stream.EVALUATION_ACTIONS)
        variates: np.ndarray = (noise.gumbel if self.network.discrete else noise.normal)(np, words, np.float64)[0]
        return variates


def load_agent(config: Config, saved: Checkpoint, env: VectorEnv, greedy: bool, seed: int) -> Agent:
    """The policy of a run's checkpoint, for `env`. Raises `ConfigError` if the checkpoint is of another network."""
    network = config.network_for(env)
    root, arrays = config.root, saved.arrays
    policy = config.framework.policy(network, arrays, root.precision, root.device, config.tuning)
    return Agent(
        network,
        policy,
        load_obs_stats(config, arrays, env),
        config.ppo.obs_clip,
        config.root.precision,
        greedy,
        seed,
        action_bounds(env.action_space, config.root.env.rescale_actions),
    )


def load_obs_stats(config: Config, arrays: Arrays, env: VectorEnv) -> normalize.RunningStats | None:
    """The statistics in a checkpoint's `arrays` that normalise observations; None if the run leaves them unchanged."""
    statistics = load_arrays(normalization_array_specs(env.observation_space.shape), arrays)
    return normalize.select_stats(statistics, "normalize.obs") if config.ppo.norm_obs else None


def quotas(episodes: int, num_envs: int) -> np.ndarray:
    """Number of episodes that count in each environment, `[N]`: equal numbers, plus one in each of the first ones."""
    return episodes // num_envs + (np.arange(num_envs) < episodes % num_envs)


def play(
    env: VectorEnv,
    agent: Agent,
    episodes: int,
    seed: int,
    stop: Sequence[int] = (),
    watch: Callable[[], None] = lambda: None,
    against_random: bool = False,
) -> Iterator[Episode]:
    """Play fresh environments and yield `episodes` whole episodes as they end; `step` counts steps of all environments.

    The first episodes of each environment count, as many as `quotas` says. Which ones count is thus fixed beforehand;
    taking the first to end in any environment would favour short ones. Time limits are the environment's. A lost life
    ends no episode: an episode is a whole game. Returns are sums of unclipped rewards. Ends with the first step after
    which `stop` is not empty. `watch` is called after the reset and after every step. With `against_random`, `agent`
    plays row `k % P` of game k, which has P rows, and only its episodes count; random actions play the others. Raises
    `RunError` if no such episode ends in `MAX_STEPS_WITHOUT_AN_END` steps.
    """
    num_envs = env.num_envs
    players = get_num_players(env) if against_random else 1
    games = np.arange(num_envs // players)
    rows = games * players + games % players
    others, rng = np.delete(np.arange(num_envs), rows), np.random.default_rng(seed)
    wanted = np.zeros(num_envs, np.int64)
    wanted[rows] = quotas(episodes, len(rows))
    counted = np.zeros(num_envs, np.int64)
    policy_input = env.reset(noise.env_seeds(seed, 0, num_envs, noise.Stream.EVALUATION_ENV_SEEDS))
    watch()
    done, episode_start, totals, t = np.zeros(num_envs, bool), np.ones(num_envs, bool), zero_totals(num_envs), 0
    last_end = 0
    carry: Tree = agent.carry(num_envs)
    same_step = getattr(env, "same_step", False)
    while (counted < wanted).any() and not stop:
        if t - last_end >= MAX_STEPS_WITHOUT_AN_END:
            raise RunError(
                f"no episode has ended in {MAX_STEPS_WITHOUT_AN_END} steps: give the environment a time limit, such as "
                "gymnasium's TimeLimit by env.wrappers"
            )
        actions, carry = agent.act(t, policy_input, episode_start, carry)
        if against_random:
            actions = np.array(actions)
            actions[others] = random_actions(env, rng, policy_input.action_mask)[others]
        step = env.step(actions)
        watch()
        episode_info = {name: numbers[None] for name, numbers in getattr(env, "episode_info", {}).items()}
        totals, ended = accumulate_episodes(
            totals, step.raw_reward[None], step.episode_over[None], ~done[None], episode_info
        )
        for episode in ended:
            if counted[episode.env] < wanted[episode.env]:
                counted[episode.env] += 1
                last_end = t
                yield episode._replace(step=t * num_envs + episode.step)
        ends = step.terminated | step.truncated
        episode_start, done = (ends, np.zeros_like(ends)) if same_step else (done, ends)
        policy_input, t = step.policy_input, t + 1
