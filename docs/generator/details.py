"""Implementation details of the presets, each with a link to the source code that implements it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Settings = dict[str, Any]
"""A resolved configuration, as plain values."""


class Detail(NamedTuple):
    """One detail: which presets have it, its text (with values as `{...}`) and its place in the source."""

    applies: Callable[[Settings], bool]
    text: str
    source: str


def _always(_: Settings) -> bool:
    return True


def _network(*names: str) -> Callable[[Settings], bool]:
    return lambda c: c["network"]["_target_"].rpartition(".")[2] in names


def _backend(name: str) -> Callable[[Settings], bool]:
    return lambda c: bool(c["backend"]["name"] == name)


def _atari(c: Settings) -> bool:
    return c["env"]["atari"] is not None and c["env"]["players"] == 1


def _baselines(c: Settings) -> bool:
    return _atari(c) and bool(c["env"]["atari"]["baselines"])


def _floats(c: Settings) -> bool:
    return "continuous" in c["name"]


DETAILS = (
    Detail(
        _always,
        "**{num_envs} environments step together** for {num_steps} steps: a batch is {batch_size:,} transitions.",
        "ppo_bench/envs/base.py#VectorEnv",
    ),
    Detail(
        _always,
        "**Next-step autoreset.** The observation after the last step of an episode is that episode's final "
        "one; the step after it only resets the environment.",
        "ppo_bench/envs/base.py#Step",
    ),
    Detail(
        lambda c: not _network("ImpalaCnn", "Trxl")(c),
        "**Orthogonal initial weights**, biases of 0, from the seed by a counter-based generator: the same in"
        " every framework.",
        "ppo_bench/mathematics/weights.py#orthogonal",
    ),
    Detail(
        _always,
        "**Adam with epsilon {adam_eps}** on all parameters at once.",
        "ppo_bench/runners/torch_adam.py#Adam",
    ),
    Detail(
        lambda c: c["ppo"]["anneal_lr"],
        "**The learning rate falls linearly** from {learning_rate} to {final_learning_rate}.",
        "ppo_bench/algorithms/base.py#Hyperparameters.learning_rate_of",
    ),
    Detail(
        lambda c: not c["ppo"]["anneal_lr"] and c["ppo"]["adaptive_kl"] is None,
        "**The learning rate stays** at {learning_rate}.",
        "ppo_bench/algorithms/base.py#Hyperparameters.learning_rate_of",
    ),
    Detail(
        lambda c: c["ppo"]["adaptive_kl"] is not None,
        "**The learning rate follows the KL divergence** of the updates, towards {adaptive_kl}, from {learning_rate}.",
        "ppo_bench/mathematics/ppo.py#adapted_factor",
    ),
    Detail(
        lambda c: c["ppo"]["final_ent_coef"] is not None,
        "**The weight of the entropy bonus falls linearly** from {ent_coef} to {final_ent_coef} over "
        "{anneal_timesteps:,} steps.",
        "ppo_bench/mathematics/ppo.py#annealed",
    ),
    Detail(
        _always,
        "**Generalised advantage estimation** with discount {gamma} and lambda {gae_lambda}; one step "
        "function, looped over by PyTorch and scanned by JAX.",
        "ppo_bench/mathematics/ppo.py#gae",
    ),
    Detail(
        _always,
        "**{update_epochs} epochs of {num_minibatches} minibatches**, {minibatch_size:,} transitions each, "
        "shuffled by counter-based noise.",
        "ppo_bench/mathematics/noise.py#permutations",
    ),
    Detail(
        lambda c: c["ppo"]["norm_adv"] and not c["ppo"]["norm_adv_by_shard"],
        "**Advantages are normalised in each minibatch**, by the population's standard deviation.",
        "ppo_bench/mathematics/ppo.py#normalize_advantages",
    ),
    Detail(
        lambda c: c["ppo"]["norm_adv"] and c["ppo"]["norm_adv_by_shard"],
        "**Advantages are normalised in each of the {shards} shards of a minibatch**, by the population's standard "
        "deviation.",
        "ppo_bench/mathematics/ppo.py#normalize_advantages",
    ),
    Detail(
        lambda c: not c["ppo"]["norm_adv"],
        "**Advantages are not normalised.**",
        "ppo_bench/mathematics/ppo.py#losses",
    ),
    Detail(
        _always,
        "**The clipped surrogate objective**, with ratios within 1 ± {clip_coef}.",
        "ppo_bench/mathematics/ppo.py#policy_loss",
    ),
    Detail(
        lambda c: c["ppo"]["clip_vloss"],
        "**The critic is clipped** to within {clip_coef} of its old values.",
        "ppo_bench/mathematics/ppo.py#value_loss",
    ),
    Detail(
        _always,
        "**The total loss** is the policy's, less {ent_coef} times the entropy, plus {vf_coef} times the critic's.",
        "ppo_bench/algorithms/ppo.py#Ppo.loss",
    ),
    Detail(
        _always,
        "**Gradients are scaled down to a global norm of {max_grad_norm}.**",
        "ppo_bench/mathematics/ppo.py#clip_scale",
    ),
    Detail(
        lambda c: not c["ppo"]["bootstrap_truncated"],
        "**A time limit counts as a terminal state**, as in the script (`ppo.bootstrap_truncated=false`); "
        "this project's default gives it the value of the final observation.",
        "ppo_bench/algorithms/ppo.py#Ppo.targets",
    ),
    Detail(
        lambda c: not c["ppo"]["mask_resets"],
        "**Steps that only reset an environment are learnt from**, as in the script (`ppo.mask_resets=false`).",
        "ppo_bench/algorithms/ppo.py#Ppo.targets",
    ),
    Detail(
        lambda c: c["ppo"]["mask_resets"],
        "**Steps that only reset an environment are left out of every loss** (`ppo.mask_resets=true`).",
        "ppo_bench/algorithms/ppo.py#Ppo.targets",
    ),
    Detail(
        _network("Mlp"),
        "**Actor and critic are separate networks** of hidden layers of {hidden_sizes} units with "
        "{activation}; the actor's last layer has the gain 0.01, the critic's 1, hidden layers the square "
        "root of 2.",
        "ppo_bench/networks/spec.py#Mlp",
    ),
    Detail(
        _network("NatureCnn"),
        "**The Nature CNN** (Mnih et al. 2015) is shared by actor and critic.",
        "ppo_bench/networks/spec.py#NatureCnn",
    ),
    Detail(
        lambda c: c["network"].get("undivided_channels", 0) > 0,
        "**The last {undivided_channels} channels are not divided by 255**.",
        "ppo_bench/networks/network.py#NetworkSpec._scaled",
    ),
    Detail(
        _network("ImpalaCnn"),
        "**The IMPALA CNN** (Espeholt et al. 2018) is shared by actor and critic.",
        "ppo_bench/networks/spec.py#ImpalaCnn",
    ),
    Detail(
        _network("ImpalaCnn"),
        "**Initial weights and biases are uniform** within one over the root of the fan-in, as PyTorch's are by "
        "default; those of the output layers are orthogonal, with biases of 0.",
        "ppo_bench/networks/layers.py#weight_and_bias",
    ),
    Detail(
        _network("RecurrentCnn"),
        "**The Nature CNN and a memory ({cell}) of {units} units**, shared by actor and critic. A minibatch "
        "holds whole environments, and the memory is cleared at the start of an episode, lost lives included.",
        "ppo_bench/networks/spec.py#RecurrentCnn",
    ),
    Detail(
        _network("RndCnn"),
        "**CleanRL's network for random network distillation**, with a critic of two values.",
        "ppo_bench/networks/spec.py#RndCnn",
    ),
    Detail(
        _network("Trxl"),
        "**A transformer over the latest {memory} steps** of an episode: {layers} layers of width {dim}, "
        "heads: {heads}, positions: {positions}.",
        "ppo_bench/networks/transformer.py#Trxl",
    ),
    Detail(
        _network("Trxl"),
        "**Initial biases, and weights within the transformer, are uniform** within one over the root of the fan-in, "
        "as PyTorch's are by default; other weights are orthogonal.",
        "ppo_bench/networks/layers.py#weight_and_bias",
    ),
    Detail(
        lambda c: c["algorithm"]["name"] == "rnd",
        "**Random network distillation** (Burda et al. 2018): a predictor learns the features of a fixed "
        "random network, and its error is an intrinsic reward, with a discount of {int_gamma} and no ends of "
        "episodes.",
        "ppo_bench/algorithms/rnd.py#Rnd",
    ),
    Detail(
        lambda c: c["algorithm"]["name"] == "rnd",
        "**Advantages are summed** with the weights {ext_coef} (extrinsic) and {int_coef} (intrinsic).",
        "ppo_bench/algorithms/rnd.py#Rnd.targets",
    ),
    Detail(
        lambda c: c["algorithm"]["name"] == "rnd",
        "**Statistics of observations learn from {warm_up_iterations} rollouts** of random actions before training.",
        "ppo_bench/algorithms/rnd.py#Rnd.warmed",
    ),
    Detail(
        _baselines,
        "**Frames and resets are those of Baselines' wrappers**: 1 to 30 no-ops at the start of a game, FIRE "
        "where a game has it, the maximum of two frames, 84 x 84 in grey, {frames} of them stacked.",
        "ppo_bench/envs/atari_baselines.py#make_atari_baselines",
    ),
    Detail(
        lambda c: _atari(c) and c["backend"]["name"] == "envpool",
        "**EnvPool preprocesses the frames**: four frames a step, the maximum of the last two, 84 x 84 in "
        "grey, {frames} of them stacked; the chance that an action is repeated is "
        "{repeat_action_probability}.",
        "ppo_bench/envs/envpool.py#EnvPoolEnv",
    ),
    Detail(
        lambda c: _atari(c) and c["env"]["atari"]["episodic_life"],
        "**A lost life ends an episode for learning**, while the game goes on.",
        "ppo_bench/envs/base.py#Step",
    ),
    Detail(
        lambda c: c["env"]["atari"] is not None and c["env"]["atari"]["reward_clip"],
        "**Learning sees the sign of the reward**; returns are of the game's own rewards.",
        "ppo_bench/envs/base.py#Step",
    ),
    Detail(
        _floats,
        "**A normal distribution whose deviation does not depend on the state**, independent in each dimension.",
        "ppo_bench/mathematics/distributions.py#normal_log_prob",
    ),
    Detail(
        _floats,
        "**Actions are clipped to the environment's bounds** after sampling; the log-probability is that of "
        "the unclipped action.",
        "ppo_bench/mathematics/normalize.py#ActionBounds",
    ),
    Detail(
        lambda c: c["ppo"]["norm_obs"],
        "**Observations are normalised** by running statistics and clipped to ± {obs_clip}.",
        "ppo_bench/mathematics/normalize.py#normalize_observations",
    ),
    Detail(
        lambda c: c["ppo"]["norm_reward"],
        "**Rewards are divided by the deviation of their discounted sum** and clipped to ± {reward_clip}; the"
        " sum begins anew with each episode.",
        "ppo_bench/mathematics/normalize.py#normalize_rewards",
    ),
    Detail(
        _backend("pettingzoo"),
        "**Each player is a row**, and one policy plays all of them; two planes of the observation say who looks.",
        "ppo_bench/envs/atari_players.py#AtariPlayers",
    ),
    Detail(
        _backend("jax"),
        "**Physics and learning are one JAX program**, by Brax's pipeline `mjx`.",
        "ppo_bench/envs/jax/brax.py#Brax",
    ),
    Detail(
        _always,
        "**All randomness is a function of where it is used**: seed, stream, iteration, step and index; "
        "nothing random is stored.",
        "ppo_bench/mathematics/noise.py#threefry2x32",
    ),
    Detail(
        _always,
        "**Environments restart at every checkpoint** ({every_iterations} iterations), in every run, so that "
        "a run that was stopped ends as one that was not.",
        "ppo_bench/runs/train.py#train",
    ),
)
