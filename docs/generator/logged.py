"""Meanings of the columns of metrics.jsonl, for the pages of presets."""

from __future__ import annotations

METRICS = {
    "episodic_return": "mean return of the episodes that ended in the iteration",
    "episodic_length": "mean length of those episodes, in steps",
    "sps": "environment steps per second of the iteration",
    "evaluation_return_greedy": "mean return by the likeliest actions (`evaluation.every_iterations`)",
    "evaluation_return_sampled": "mean return by sampled actions (`evaluation.every_iterations`)",
    "learning_rate": "Adam's learning rate",
    "policy_loss": "the clipped surrogate loss",
    "value_loss": "the critic's loss, half the mean squared error",
    "entropy": "mean entropy of the policy",
    "old_approx_kl": "mean of -log ratio, an estimate of the KL divergence from the old policy",
    "approx_kl": "mean of (ratio - 1) - log ratio, an estimate with less variance",
    "clip_fraction": "share of ratios that were clipped",
    "explained_variance": "1 less the share of the returns' variance that the critic leaves unexplained",
    "std": "standard deviation of a policy of continuous actions (the geometric mean over its components)",
    "gradient_norm": "global norm of the gradient before it is clipped",
    "masked_fraction": "share of steps that only reset an environment",
    "intrinsic_value_loss": "loss of the critic of intrinsic rewards",
    "forward_loss": "the predictor's error",
    "intrinsic_reward": "mean intrinsic reward, before it is normalised",
    "intrinsic_return": "mean intrinsic return",
    "reconstruction_loss": "distance between images that were seen and those that the decoder makes",
}
"""Meaning of each column of metrics.jsonl, by its name."""
