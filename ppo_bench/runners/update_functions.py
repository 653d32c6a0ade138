"""All computations of a training except the environments' steps, as pure functions of a framework's operations.

All frameworks execute these same functions: eagerly, compiled, recorded as CUDA graphs, or as part of a JAX program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.algorithms.base import LEARNING_RATE_FACTOR, Hyperparameters, Targets
from ppo_bench.algorithms.ppo import Ppo
from ppo_bench.mathematics import noise, ppo
from ppo_bench.mathematics.arrays import Array, Tree, add_prefix, select_prefix
from ppo_bench.mathematics.shards import Shard
from ppo_bench.networks.network import NetworkSpec, mask_logits
from ppo_bench.networks.ops import Ops
from ppo_bench.runners.array_specs import rollout_array_specs
from ppo_bench.runners.base import TrainingSpec

LEARNING_ARRAYS = ("rewards", "terminated", "truncated", "value_mask", "policy_mask")
"""Names of the per-step arrays of a rollout that learning reads, `[T, N]` each; see `Ppo.targets`."""


class UpdateFunctions(NamedTuple):
    """Functions of a `TrainingSpec`. Their argument `arrays` has the trained parameters and frozen arrays by name."""

    network: NetworkSpec
    algorithm: Ppo
    ppo: Hyperparameters
    ops: Ops
    env_axes: Mapping[str, int]
    """Axis of the environments in each array of the rollout buffer, by name."""
    num_envs: int
    """Number of environments of one device."""
    devices: int
    """Number of devices that share the training; every function here is one device's share of the work."""

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the scalars that `loss` reports, in order."""
        return tuple(metric.name for metric in self.algorithm.loss_metrics)

    @property
    def learning_arrays(self) -> tuple[str, ...]:
        """Names of what learning reads: `LEARNING_ARRAYS`, and `episode_start`, which resets the carry, if there is
        one."""
        return (*LEARNING_ARRAYS, "episode_start") if self.network.carry else LEARNING_ARRAYS

    @property
    def num_local_shards(self) -> int:
        """Number of shards on this device."""
        return self.ppo.shards // self.devices

    # --- Noise --------------------------------------------------------------------------------------------------------

    def action_noise(
        self, seed: Array, iteration: Array, steps: Array, envs: Array, lanes: Array, dtype: object
    ) -> Array:
        """Action noise of an iteration, `[T + 1, N, A]`: Gumbel for categorical policies, else standard normal.

        `seed [1]`, `iteration [1]`, `steps [T + 1]`, `envs [N]` and `lanes [A]` are int32.
        """
        words = noise.action_words(self.ops.xp, seed, iteration, steps, envs, lanes)
        return (noise.gumbel if self.network.discrete else noise.normal)(self.ops.xp, words, dtype)

    # --- Learning -----------------------------------------------------------------------------------------------------

    def targets(self, arrays: Tree, statistics: Tree, rollout: Tree) -> Targets:
        """The batch from which minibatches are taken; `rollout` has the buffer, the `learning_arrays`, seed and
        iteration.

        The batch has flattened transitions, `[T * N, ...]`, and flattened rows of windows, `[(K + T) * N, ...]`. For a
        network that learns from sequences, arrays keep their axes, `[T, N, ...]`, and the batch has the carry before
        the first step, `[N, ...]`.
        """
        targets = self.algorithm.targets(self.ops, self.network, self.ppo, arrays, statistics, rollout)
        batch = {"obs": rollout["obs"][:-1], "actions": rollout["actions"][:-1]}
        batch |= {**targets.batch, **add_prefix("mask", targets.masks)}
        carry = {f"carry.{c.name}": rollout[f"carry.{c.name}"] for c in self.network.carry}
        if "action_mask" in rollout:
            batch["action_mask"] = rollout["action_mask"][:-1]
        if self.network.carry:
            batch["episode_start"] = rollout["episode_start"]
        if self.network.learns_from_sequences:
            return targets._replace(batch=batch | carry)
        windows = {f"carry.{window.name}" for window in self.network.windows}
        batch |= {name: array if name in windows else array[:-1] for name, array in carry.items()}
        return targets._replace(batch={name: x.reshape((-1, *x.shape[2:])) for name, x in batch.items()})

    def warmup(self, statistics: Tree, rollout: Tree) -> Tree:
        """See `Ppo.warmup`."""
        return self.algorithm.warmup(self.ops, self.network, self.ppo, statistics, rollout)

    @property
    def statistic_names(self) -> tuple[str, ...]:
        """Names of the algorithm's statistics, in order."""
        return tuple(statistic.name for statistic in self.algorithm.statistics(self.network, self.ppo))

    def learning_rate(self, statistics: Tree, scheduled: Any) -> Any:
        """The learning rate of an update, from the one that is `scheduled` for its iteration."""
        factor = statistics.get(LEARNING_RATE_FACTOR)
        return scheduled if factor is None else scheduled * factor

    def after_update(self, statistics: Tree, metrics: Tree) -> Tree:
        """See `Ppo.after_update`."""
        return self.algorithm.after_update(self.ops, self.ppo, statistics, metrics)

    # --- Minibatches --------------------------------------------------------------------------------------------------

    @property
    def sample_indices(self) -> np.ndarray:
        """Indices `[S, B]` int32 of the samples of this device's S shards: transitions, or whole environments.

        They index the samples of all devices in time-major order, as if this device were the first one.
        """
        steps = np.arange(1 if self.network.learns_from_sequences else self.ppo.num_steps, dtype=np.int32)
        numbers = steps[:, None] * (self.num_envs * self.devices) + np.arange(self.num_envs, dtype=np.int32)
        return numbers.reshape(len(steps), self.num_local_shards, -1).swapaxes(0, 1).reshape(self.num_local_shards, -1)

    def minibatch_indices(
        self,
        seed: Array,
        iteration: Array,
        epochs: Array,
        sample_indices: Array,
        argsort: Callable[[Any, Array], Array] = noise.stable_argsort,
    ) -> Array:
        """This device's sample indices of each minibatch, `[E, K, M]`.

        Every shard contributes equally many samples, in its own random order. `sample_indices` is the property of that
        name plus the index of this device's first row; `seed [1]`, `iteration [1]` and `epochs [E]` are int32.
        """
        permuted = noise.permutations(self.ops.xp, seed, iteration, epochs, sample_indices, argsort=argsort)
        num_epochs, num_minibatches = permuted.shape[0], self.ppo.num_minibatches
        if self.num_local_shards == 1:
            return permuted.reshape(num_epochs, num_minibatches, -1)
        envs_per_shard = self.num_envs // self.num_local_shards  # from indices within a shard to indices on the device
        shard = self.ops.xp.cumsum(self.ops.xp.ones_like(permuted[:1, :, :1]), 1) - 1
        rows = permuted // envs_per_shard * self.num_envs + shard * envs_per_shard + permuted % envs_per_shard
        by_minibatch = rows.reshape(num_epochs, self.num_local_shards, num_minibatches, -1).swapaxes(1, 2)
        return by_minibatch.reshape(num_epochs, num_minibatches, -1)

    def weights(self, batch: Tree, rows: Array) -> Array:
        """Advantages, normalised if `norm_adv`, and the weights of masks: `[E, K, W, B]` for K minibatches of E epochs.

        `rows [E, K, M]` are this device's samples of each minibatch. Sums are over the samples of all devices.
        """
        xp, all_reduce_sum = self.ops.xp, self.ops.all_reduce_sum
        masks = select_prefix("mask", batch)
        minibatch_masks = xp.stack([self._by_minibatch(mask, rows) for mask in masks.values()])
        weights = ppo.normalize_masks(xp, minibatch_masks, all_reduce_sum)
        advantages = self._by_minibatch(batch["advantages"], rows)
        if self.ppo.norm_adv:
            policy = list(masks).index("policy")
            advantages = (
                self._normalize_by_shard(advantages, minibatch_masks[policy])
                if self.ppo.norm_adv_by_shard
                else ppo.normalize_advantages(xp, advantages, weights[policy], all_reduce_sum)
            )
        return xp.stack([advantages, *weights], 2)

    def _by_minibatch(self, x: Array, rows: Array) -> Array:
        """The entries of `x` in each minibatch, `[E, K, B]`; `x` has a number for each transition, or E of them."""
        epochs, minibatches, samples = rows.shape
        if x.ndim > (2 if self.network.learns_from_sequences else 1):  # different ones for each epoch
            by_epoch = (self._by_minibatch(x[..., epoch], rows[epoch : epoch + 1]) for epoch in range(epochs))
            return self.ops.xp.concatenate(list(by_epoch), 0)
        entries = self.ops.take(x, rows.reshape(-1), 1 if self.network.learns_from_sequences else 0)
        by_step = entries.reshape(-1, epochs * minibatches, samples)
        return by_step.swapaxes(0, 1).reshape(epochs, minibatches, -1)

    def _normalize_by_shard(self, advantages: Array, mask: Array) -> Array:
        """Advantages `[..., B]` of minibatches, normalised separately within each shard's part."""
        steps, shards = self.ppo.num_steps if self.network.learns_from_sequences else 1, self.num_local_shards
        size = advantages.shape[-1] // (steps * shards)

        def by_shard(x: Array) -> Array:
            return x.reshape(-1, steps, shards, size).swapaxes(1, 2).reshape(-1, shards, steps * size)

        weights = ppo.normalize_masks(self.ops.xp, by_shard(mask))
        normalized = ppo.normalize_advantages(self.ops.xp, by_shard(advantages), weights)
        return normalized.reshape(-1, shards, steps, size).swapaxes(1, 2).reshape(advantages.shape)

    def minibatch(self, batch: Tree, rows: Array, weights: Array) -> Tree:
        """The minibatch of the samples `rows [M]`; `weights [W, B]` are its row of `UpdateFunctions.weights`."""
        sequences = self.network.learns_from_sequences
        windows = {f"carry.{w.name}": w.shape[0] for w in self.network.windows}
        minibatch = {}
        for name, x in batch.items():
            if name == "advantages" or name.startswith("mask."):
                continue
            if name in windows:
                minibatch[name] = self.ops.take_windows(x, rows, windows[name], self.num_envs)
            else:
                minibatch[name] = self.ops.take(x, rows, self.env_axes.get(name, 1) if sequences else 0)
        names = ("advantages", *(f"{name}_weight" for name in select_prefix("mask", batch)))
        shape = (self.ppo.num_steps, -1) if sequences else (-1,)
        return minibatch | {name: x.reshape(shape) for name, x in zip(names, weights, strict=True)}

    def loss(self, arrays: Tree, minibatch: Tree) -> tuple[Array, Array]:
        """The scalar loss to minimise, and the reported scalars `[M]` in the order of `loss_names`.

        If devices share the minibatch, both are this device's addends of a sum over devices.
        """
        network, ops = self.network, self.ops
        obs, carry, episode_start = minibatch["obs"], select_prefix("carry", minibatch), minibatch.get("episode_start")
        policy_outputs, values, _ = network.forward(ops, arrays, obs, carry, episode_start)
        if network.learns_from_sequences:
            first, values = (x.reshape((-1, *x.shape[2:])) for x in (policy_outputs[0], values))
            policy_outputs = (first, *policy_outputs[1:])
            steps = {name: x for name, x in minibatch.items() if not name.startswith("carry.")}
            minibatch = {name: x.reshape((-1, *x.shape[2:])) for name, x in steps.items()}
        policy_outputs = mask_logits(ops.xp, policy_outputs, minibatch.get("action_mask"))
        total, measured = self.algorithm.loss(ops, network, self.ppo, arrays, policy_outputs, values, minibatch)
        return total, ops.xp.stack([measured[name] for name in self.loss_names])


def make_update_functions(spec: TrainingSpec, ops: Ops) -> UpdateFunctions:
    """The functions of one device for `spec`, executed by `ops`."""
    one = replace(spec, shard=Shard(0, spec.devices))
    env_axes = {array.name: array.env_axis for array in rollout_array_specs(one) if array.env_axis is not None}
    return UpdateFunctions(one.network, one.algorithm, one.ppo, ops, env_axes, one.num_envs, spec.devices)
