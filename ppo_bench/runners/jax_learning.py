"""What both JAX runners share: the learner and its way in and out, and the programs of acting and learning."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ppo_bench import noise, ppo
from ppo_bench.errors import ConfigError
from ppo_bench.networks import jax as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.precision import NO_TF32, PRECISIONS, Precision
from ppo_bench.runners import objective
from ppo_bench.runners.base import Arrays, Hyperparameters, Problem, fitting, has_nvidia_gpu
from ppo_bench.weights import initial_weights

MOMENTS = {"adam.mean": "mu", "adam.variance": "nu"}  # our name: optax's
REPORTED = tuple(name for name in ppo.Losses._fields if name != "total")
MEASURED = (*REPORTED, "gradient_norm", "explained_variance")
"""What an update measures."""


class Learner(NamedTuple):
    """What learning changes, on the device."""

    params: networks.Params
    adam: optax.ScaleByAdamState


class Storage(NamedTuple):
    """What the policy saw and did in one iteration, on the device; donated from step to step, allocated once."""

    obs: jax.Array
    """`[T + 1, N, ...]`, the last row for the observations after the rollout."""
    actions: jax.Array
    """`[T + 1, N]` or `[T + 1, N, K]`; the last row is not used."""
    heads: jax.Array
    """`[T + 1, N, A]`, the first part of the policy's head: logits or mean."""
    values: jax.Array
    """`[T + 1, N]`."""


class Batch(NamedTuple):
    """The transitions of one iteration, or of a minibatch of it; `[B, ...]` each."""

    obs: jax.Array
    actions: jax.Array
    targets: ppo.Minibatch


class Learning:
    """Learners of one problem on one device: made, exported and restored."""

    def __init__(self, problem: Problem) -> None:
        self.network = problem.network
        self.ppo = problem.ppo
        self._num_iterations = problem.num_iterations
        precision = PRECISIONS[problem.precision]
        matmul_precision = set_precision(precision)
        self.dtype, self.layers = jnp.dtype(precision.parameters), jnp.dtype(precision.layers)
        self.device = pick_device(problem.device, precision)
        self.optimizer = optax.scale_by_adam(eps=problem.ppo.adam_eps)
        self.execution = {
            "device": str(self.device),
            "precision": precision._asdict() | {"default_matmul_precision": matmul_precision},
        } | ({"gpu": self.device.device_kind} if self.device.platform == "gpu" else {})

    def learning_rate(self, iteration: int) -> float:
        """Of the `iteration`-th iteration, counted from 1."""
        if not self.ppo.anneal_lr:
            return self.ppo.learning_rate
        return ppo.annealed_learning_rate(self.ppo.learning_rate, iteration, self._num_iterations)

    def init(self, seed: int) -> Learner:
        """Initial weights."""
        params = self._arrays(initial_weights(self.network.parameters, seed))
        return self._put(Learner(params, self.optimizer.init(params)))

    def _arrays(self, arrays: Arrays) -> networks.Params:
        return {name: jnp.asarray(array, self.dtype) for name, array in arrays.items()}

    def _put(self, learner: Learner) -> Learner:
        """Every array tied to the device, as those that a program returns: else it would be compiled twice."""
        return jax.device_put(learner, self.device)

    @staticmethod
    def export(learner: Learner, seed: int, iteration: int) -> Arrays:
        """Parameters, Adam's moments and the counters by name; see `Runner.export`."""
        adam = learner.adam
        kinds = {"params": learner.params} | {ours: getattr(adam, theirs) for ours, theirs in MOMENTS.items()}
        arrays = {f"{kind}.{name}": np.array(array) for kind, tree in kinds.items() for name, array in tree.items()}
        counters = {"seed": seed, "iteration": iteration, "adam.step": int(adam.count)}
        return arrays | {name: np.array(value) for name, value in counters.items()}

    def restore(self, arrays: Arrays) -> tuple[int, int, Learner]:
        """Seed, iteration and learner that `export` gave."""
        params, *moments = (
            self._arrays({p.name: fitting(arrays, f"{kind}.{p.name}", p.shape) for p in self.network.parameters})
            for kind in ("params", *MOMENTS)
        )
        count = jnp.asarray(fitting(arrays, "adam.step", ()), jnp.int32)
        adam = optax.ScaleByAdamState(count=count, **dict(zip(MOMENTS.values(), moments, strict=True)))
        learner = self._put(Learner(params, adam))
        return int(fitting(arrays, "seed", ())), int(fitting(arrays, "iteration", ())), learner


# --- Compiled programs ------------------------------------------------------------------------------------------------


def action_noise(
    network: NetworkSpec, hp: Hyperparameters, dtype: jnp.dtype, seed: jax.Array, iteration: jax.Array
) -> jax.Array:
    """The noise of a whole iteration `[T + 1, N, A]`: Gumbel for categorical policies, else standard normal."""
    steps, envs, lanes = (jnp.arange(n, dtype=jnp.int32) for n in (hp.num_steps + 1, hp.num_envs, network.num_actions))
    words = noise.action_words(jnp, seed[None], iteration[None], steps, envs, lanes)
    return (noise.gumbel if network.discrete else noise.normal)(jnp, words, dtype)


def act(
    network: NetworkSpec,
    layers: jnp.dtype,
    params: networks.Params,
    storage: Storage,
    noise_of_step: jax.Array,
    t: jax.Array,
    obs: jax.Array,
) -> tuple[Storage, jax.Array]:
    """The actions of step `t` for `obs [N, ...]`, and the storage with what the policy saw and did."""
    obs = obs.astype(storage.obs.dtype)
    head, values, _ = networks.apply(network, params, obs, (), None, layers)
    actions = network.distribution.sample(jnp, head, noise_of_step[t])
    row = (obs, actions, head[0], values)
    stored = (array.at[t].set(x.astype(array.dtype)) for array, x in zip(storage, row, strict=True))
    return Storage(*stored), actions


def scan_backwards(_: Any, deltas: jax.Array, decays: jax.Array) -> jax.Array:
    """`ppo.gae_step` from the last row to the first, as one loop of the program."""

    def step(next_advantage: jax.Array, row: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        advantage = ppo.gae_step(next_advantage, *row)
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros_like(deltas[0]), (deltas, decays), reverse=True)[1]


def stable_argsort(_: Any, words: jax.Array) -> jax.Array:
    """`noise.stable_argsort` of int32 words, by sorting numbers that hold a word and its place.

    On a CPU XLA sorts pairs, as `jnp.argsort` does, 4 times slower (docs/performance.md).
    """
    with jax.enable_x64(True):
        places = jnp.arange(words.shape[-1], dtype=jnp.int64)
        ordered = jax.lax.sort(words.astype(jnp.int64) << 32 | places, is_stable=False)
        return (ordered & 0xFFFFFFFF).astype(jnp.int32)


def update(
    network: NetworkSpec,
    layers: jnp.dtype,
    hp: Hyperparameters,
    optimizer: optax.GradientTransformation,
    learner: Learner,
    storage: Storage,
    flags: tuple[jax.Array, ...],
    seed: jax.Array,
    iteration: jax.Array,
    learning_rate: jax.Array,
) -> tuple[Learner, dict[str, jax.Array]]:
    """Advantages, then every epoch and minibatch, in one program; the means of what the minibatches measured."""
    dtype = storage.values.dtype
    targets, explained_variance = objective.targets(
        jnp, network, hp, learner.params, storage, *(array.astype(dtype) for array in flags), scan=scan_backwards
    )
    obs, actions = (x[:-1].reshape(hp.batch_size, *x.shape[2:]) for x in (storage.obs, storage.actions))
    batch = Batch(obs, actions, targets)
    epochs, indices = (jnp.arange(n, dtype=jnp.int32) for n in (hp.update_epochs, hp.batch_size))
    permutations = noise.permutations(jnp, seed[None], iteration[None], epochs, indices, argsort=stable_argsort)

    def gradient_step(learner: Learner, rows: jax.Array) -> tuple[Learner, jax.Array]:
        minibatch = jax.tree.map(lambda x: x[rows], batch)
        return _gradient_step(network, layers, hp, optimizer, learner, minibatch, learning_rate)

    def epoch(carry: tuple[Learner, jax.Array], rows: jax.Array) -> tuple[tuple[Learner, jax.Array], Any]:
        learner, stopped = carry
        nothing = jnp.zeros((hp.num_minibatches, len(REPORTED) + 1), dtype)
        passed, measured = jax.lax.cond(
            stopped, lambda: (learner, nothing), lambda: jax.lax.scan(gradient_step, learner, rows)
        )
        ran = ~stopped
        if hp.target_kl is not None:
            stopped = stopped | (measured[-1, REPORTED.index("approx_kl")] > hp.target_kl)
        return (passed, stopped), (measured, ran)

    rows = permutations.reshape(hp.update_epochs, hp.num_minibatches, hp.minibatch_size)
    (learner, _), (measured, ran) = jax.lax.scan(epoch, (learner, jnp.asarray(False)), rows)
    means = jnp.sum(measured, (0, 1)) / (jnp.sum(ran) * hp.num_minibatches)
    return learner, dict(zip(MEASURED, [*means, explained_variance], strict=True))


def _gradient_step(
    network: NetworkSpec,
    layers: jnp.dtype,
    hp: Hyperparameters,
    optimizer: optax.GradientTransformation,
    learner: Learner,
    batch: Batch,
    learning_rate: jax.Array,
) -> tuple[Learner, jax.Array]:
    """One step of Adam; the reported losses and, last, the gradient's norm before clipping."""

    def total(params: networks.Params) -> tuple[jax.Array, ppo.Losses]:
        head, values, _ = networks.apply(network, params, batch.obs, (), None, layers)
        losses = objective.losses(jnp, network, hp, head, values, batch.actions, batch.targets)
        return losses.total, losses

    gradients, losses = jax.grad(total, has_aux=True)(learner.params)
    norm = ppo.global_norm(jnp, jax.tree.leaves(gradients))
    scale = ppo.clip_scale(jnp, norm, hp.max_grad_norm)
    clipped = jax.tree.map(lambda gradient: gradient * scale, gradients)
    directions, adam = optimizer.update(clipped, learner.adam)
    params = jax.tree.map(lambda p, d: p - learning_rate.astype(p.dtype) * d, learner.params, directions)
    measured = jnp.stack([*(getattr(losses, name) for name in REPORTED), norm])
    return Learner(params, adam), measured


def set_precision(precision: Precision) -> str:
    """Make JAX compute as `precision` says; its own name for the precision of products."""
    if precision.parameters == "float64":
        jax.config.update("jax_enable_x64", True)
    # JAX's default is TF32 on a GPU that has it; "tensorfloat32" leaves products that XLA gives to Triton in float32.
    matmul_precision = "default" if precision.tf32 else "highest"
    jax.config.update("jax_default_matmul_precision", matmul_precision)
    return matmul_precision


def pick_device(device: str, precision: Precision) -> jax.Device:
    """The device that `device` (auto, cpu, cuda, cuda:<i>) names. Raises `ConfigError` if it does not do."""
    try:
        seen = jax.devices()
    except (RuntimeError, AssertionError) as error:  # also where a GPU is not asked for
        reason = (str(error) or "it finds nothing to run on").splitlines()[0]
        raise ConfigError(f"device={device}: JAX cannot begin ({reason}): JAX_PLATFORMS=cpu leaves out GPUs") from error
    if device == "auto" and has_nvidia_gpu() and seen[0].platform == "cpu":
        raise ConfigError(
            "device=auto: this machine has an NVIDIA GPU and JAX sees none: pip install 'ppo-bench[jax-cuda]', "
            "or use device=cpu"
        )
    platform, _, index = device.partition(":")
    try:
        picked = jax.devices(None if device == "auto" else platform)[int(index or 0)]
    except (RuntimeError, IndexError) as error:
        raise ConfigError(f"device={device}: JAX sees {', '.join(map(str, seen))}; use device=cpu") from error
    if precision.tf32 and (picked.platform != "gpu" or float(picked.compute_capability) < 8.0):
        raise ConfigError(NO_TF32)
    return picked


def allocate(network: NetworkSpec, hp: Hyperparameters, dtype: jnp.dtype) -> Storage:
    """Storage of zeros."""
    rows = (hp.num_steps + 1, hp.num_envs)
    lanes = network.num_actions
    return Storage(
        obs=jnp.zeros((*rows, *network.input_shape), jnp.uint8 if network.uint8 else dtype),
        actions=jnp.zeros((*rows, *network.actions.shape), jnp.int32 if network.discrete else dtype),
        heads=jnp.zeros((*rows, lanes), dtype),
        values=jnp.zeros(rows, dtype),
    )
