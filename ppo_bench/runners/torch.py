"""PPO executed by PyTorch, with environments on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ppo_bench import noise, ppo
from ppo_bench.errors import ConfigError
from ppo_bench.networks import torch as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.runners.base import Arrays, Episode, Hyperparameters, Metrics, Problem, fitting
from ppo_bench.runners.rollout import HostEnvs, Rollout, RolloutState
from ppo_bench.weights import initial_weights

DTYPES = {"float32": torch.float32, "float64": torch.float64}
REPORTED = tuple(name for name in ppo.Losses._fields if name != "total")
MOMENTS = {"adam.mean": "exp_avg", "adam.variance": "exp_avg_sq"}  # our name: the optimiser's


Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What is done to a function before it is used: nothing, or `torch.compile`."""


@dataclass
class TorchState:
    """Everything that changes from one iteration to the next."""

    seed: int
    iteration: int
    """Iterations done."""
    params: Tensor
    """`[P]`, every parameter; see `networks.named_views`."""
    optimizer: torch.optim.Adam
    envs: RolloutState


class Storage(NamedTuple):
    """What the policy saw and did in one iteration, on the device; written step by step, allocated once."""

    obs: Tensor
    """`[T + 1, N, ...]`, the last row for the observations after the rollout."""
    actions: Tensor
    """`[T + 1, N]` or `[T + 1, N, A]`; the last row is not used."""
    heads: Tensor
    """`[T + 1, N, A]`, the first part of the policy's head: logits or mean."""
    values: Tensor
    """`[T + 1, N]`."""


class Batch(NamedTuple):
    """The transitions of one iteration, or of a minibatch of it; `[B, ...]` each."""

    obs: Tensor
    actions: Tensor
    targets: ppo.Minibatch


class TorchRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(self, problem: Problem, num_threads: int | None, compiler: Compiler | None = None) -> None:
        self._network = problem.network
        self._ppo = problem.ppo
        self._num_iterations = problem.num_iterations
        self._envs = HostEnvs(problem.env, problem.network, problem.ppo)
        self._dtype = DTYPES[problem.precision]
        self._device = pick_device(problem.device)
        if num_threads or not problem.network.convolutions:
            torch.set_num_threads(num_threads or 1)
        # Full float32: PyTorch would run convolutions in TF32 on a GPU, but not matrix products, and JAX both.
        torch.backends.cudnn.allow_tf32 = False
        torch.set_float32_matmul_precision("highest")
        self.execution = {
            "device": str(self._device),
            "threads": torch.get_num_threads(),
            "float32_matmul_precision": torch.get_float32_matmul_precision(),
            "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        }
        transform: Compiler = compiler or (lambda function: function)
        self._policy: Callable[..., Any] = functools.partial(policy, self._network)
        if self._device.type == "cuda":
            # On a CPU, calling a compiled policy costs more than it saves: 43 against 25 microseconds for CartPole's.
            self._policy = transform(self._policy)
        self._clipped_gradient = transform(functools.partial(clipped_gradient, self._network, self._ppo))
        self._storage = _allocate(self._network, self._ppo, self._dtype, self._device)
        self._steps, self._env_ids, self._lanes, self._epochs, self._indices = (
            torch.arange(n, dtype=torch.int32, device=self._device)
            for n in (
                self._ppo.num_steps + 1,
                self._ppo.num_envs,
                self._network.num_actions,
                self._ppo.update_epochs,
                self._ppo.batch_size,
            )
        )

    # --- One iteration ------------------------------------------------------------------------------------------------

    def step(self, state: TorchState) -> tuple[TorchState, Metrics, list[Episode]]:
        """See `Runner.step`."""
        iteration = state.iteration + 1
        learning_rate = self._ppo.learning_rate
        if self._ppo.anneal_lr:
            learning_rate = ppo.annealed_learning_rate(learning_rate, iteration, self._num_iterations)
        state.envs, rollout = self._collect(state, iteration)
        batch, explained_variance = self._advantages(state, rollout)
        losses, norms = self._update(state, batch, iteration, learning_rate)
        state.iteration = iteration
        metrics = Metrics(
            learning_rate=learning_rate,
            explained_variance=explained_variance,
            gradient_norm=norms,
            masked_fraction=1.0 - float(np.mean(rollout.real)),
            **losses,
        )
        return state, metrics, rollout.episodes

    @torch.inference_mode()
    def _collect(self, state: TorchState, iteration: int) -> tuple[RolloutState, Rollout]:
        """The rollout; observations, heads, actions and values end up in the storage."""
        storage, params = self._storage, networks.named_views(state.params, self._network)
        noise_of_step = self._action_noise(state.seed, iteration)

        def act(t: int, obs: np.ndarray) -> np.ndarray:
            storage.obs[t].copy_(torch.from_numpy(obs))
            actions, head, value = self._policy(params, storage.obs[t], noise_of_step[t])
            storage.actions[t], storage.heads[t], storage.values[t] = actions, head, value
            return actions.cpu().numpy()

        envs, rollout = self._envs.collect(state.envs, act)
        act(self._ppo.num_steps, envs.obs)  # for the value of the last observations
        return envs, rollout

    def _action_noise(self, seed: int, iteration: int) -> Tensor:
        """The noise of a whole iteration `[T + 1, N, A]`: Gumbel for categorical policies, else standard normal."""
        words = noise.action_words(
            torch, self._scalar(seed), self._scalar(iteration), self._steps, self._env_ids, self._lanes
        )
        variates = noise.gumbel if self._network.discrete else noise.normal
        return variates(torch, words, self._dtype)

    @torch.no_grad()
    def _advantages(self, state: TorchState, rollout: Rollout) -> tuple[Batch, float]:
        """The flattened batch with its advantages and returns, and the explained variance of the old values."""
        storage, hp = self._storage, self._ppo
        rewards, terminated, truncated, real = (
            torch.from_numpy(array).to(self._device, self._dtype)
            for array in (rollout.rewards, rollout.terminated, rollout.truncated, rollout.real)
        )
        advantages = ppo.gae(
            torch,
            rewards,
            storage.values,
            terminated,
            truncated,
            gamma=hp.gamma,
            gae_lambda=hp.gae_lambda,
            bootstrap_truncated=hp.bootstrap_truncated,
        )
        values = storage.values[:-1]
        returns = advantages + values
        mask = real if hp.mask_resets else torch.ones_like(real)
        params = networks.named_views(state.params, self._network)
        heads, actions = storage.heads[:-1], storage.actions[:-1]
        head = (heads,) if self._network.discrete else (heads, params["actor.log_std"])
        log_probs = self._network.distribution.log_prob(torch, head, actions)
        explained_variance = float(ppo.explained_variance(torch, values, returns, mask))
        targets = ppo.Minibatch(*(x.flatten() for x in (log_probs, values, advantages, returns, mask)))
        return Batch(storage.obs[:-1].flatten(0, 1), actions.flatten(0, 1), targets), explained_variance

    @torch.no_grad()
    def _update(
        self, state: TorchState, batch: Batch, iteration: int, learning_rate: float
    ) -> tuple[dict[str, float], float]:
        """Every epoch and minibatch; the means of the losses and of the gradient's norm over them."""
        hp = self._ppo
        state.optimizer.param_groups[0]["lr"] = learning_rate
        permutations = noise.permutations(
            torch, self._scalar(state.seed), self._scalar(iteration), self._epochs, self._indices
        )
        measured = []
        for permutation in permutations.view(hp.update_epochs, hp.num_minibatches, hp.minibatch_size):
            for rows in permutation:
                state.params.grad, minibatch_measured = self._clipped_gradient(state.params, batch, rows)
                state.optimizer.step()
                measured.append(minibatch_measured)
            if hp.target_kl is not None and measured[-1][REPORTED.index("approx_kl")] > hp.target_kl:
                break
        *losses, norm = torch.stack(measured).mean(0).tolist()
        return dict(zip(REPORTED, losses, strict=True)), norm

    def _scalar(self, value: int) -> Tensor:
        return torch.full((1,), value, dtype=torch.int32, device=self._device)

    # --- Beginning, leaving and taking up again -----------------------------------------------------------------------

    def init(self, seed: int) -> TorchState:
        """See `Runner.init`."""
        weights = initial_weights(self._network.parameters, seed)
        params = self._vector(list(weights.values()))
        optimizer = self._adam(params, 0, {name: torch.zeros_like(params) for name in MOMENTS})
        return TorchState(seed, 0, params, optimizer, self._envs.start(seed, 0))

    def _adam(self, params: Tensor, steps: int, moments: dict[str, Tensor]) -> torch.optim.Adam:
        """Adam after `steps` steps; makes `params` what it optimises. The learning rate is set before every update."""
        optimizer = torch.optim.Adam([params.requires_grad_()], lr=0.0, eps=self._ppo.adam_eps, fused=True)
        step = torch.tensor(float(steps), dtype=torch.float32, device=self._device)
        optimizer.state[params] = {"step": step} | {MOMENTS[name]: moment for name, moment in moments.items()}
        return optimizer

    def _vector(self, arrays: list[np.ndarray]) -> Tensor:
        flat = np.concatenate([array.ravel() for array in arrays])
        return torch.from_numpy(flat).to(self._device, self._dtype)

    def export(self, state: TorchState) -> Arrays:
        """See `Runner.export`."""
        adam = state.optimizer.state[state.params]
        vectors = {"params": state.params.detach()} | {ours: adam[theirs] for ours, theirs in MOMENTS.items()}
        arrays = {
            f"{kind}.{name}": view.cpu().numpy().copy()
            for kind, vector in vectors.items()
            for name, view in networks.named_views(vector, self._network).items()
        }
        counters = {"seed": state.seed, "iteration": state.iteration, "adam.step": int(adam["step"])}
        return arrays | {name: np.array(value) for name, value in counters.items()} | HostEnvs.export(state.envs)

    def restore(self, arrays: Arrays, carried: bool = False) -> TorchState:
        """See `Runner.restore`."""
        params, *moments = (
            self._vector([fitting(arrays, f"{kind}.{p.name}", p.shape) for p in self._network.parameters])
            for kind in ("params", *MOMENTS)
        )
        optimizer = self._adam(params, int(fitting(arrays, "adam.step", ())), dict(zip(MOMENTS, moments, strict=True)))
        seed, iteration = int(fitting(arrays, "seed", ())), int(fitting(arrays, "iteration", ()))
        return TorchState(seed, iteration, params, optimizer, self._envs.restore(arrays, seed, iteration, carried))

    def restart(self, state: TorchState, iteration: int) -> TorchState:
        """See `Runner.restart`."""
        state.envs = self._envs.restart(state.envs, state.seed, iteration)
        return state

    def close(self) -> None:
        """See `Runner.close`."""
        self._envs.close()


def pick_device(device: str) -> torch.device:
    """The device that `device` (auto, cpu, cuda, cuda:<i>) names. Raises `ConfigError` if it is not there."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    picked = torch.device(device)
    if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={device}: PyTorch sees {torch.cuda.device_count()} CUDA devices; use device=cpu")
    return picked


def policy(
    network: NetworkSpec, params: networks.Params, obs: Tensor, noise_of_step: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Actions `[N]` or `[N, A]`, the first part of the head `[N, A]` and values `[N]` for `obs [N, ...]`."""
    head, values, _ = networks.apply(network, params, obs, (), None)
    return network.distribution.sample(torch, head, noise_of_step), head[0], values


def clipped_gradient(
    network: NetworkSpec, hp: Hyperparameters, params: Tensor, batch: Batch, rows: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradient `[P]` on the transitions `rows`; the reported losses and, last, its norm before clipping."""
    obs, actions = batch.obs.index_select(0, rows), batch.actions.index_select(0, rows)
    targets = ppo.Minibatch(*(x.index_select(0, rows) for x in batch.targets))

    def total(params: Tensor) -> tuple[Tensor, Tensor]:
        head, values, _ = networks.apply(network, networks.named_views(params, network), obs, (), None)
        losses = ppo.losses(
            torch,
            network.distribution.log_prob(torch, head, actions),
            network.distribution.entropy(torch, head),
            values,
            targets,
            clip_coef=hp.clip_coef,
            clip_vloss=hp.clip_vloss,
            norm_adv=hp.norm_adv,
            ent_coef=hp.ent_coef,
            vf_coef=hp.vf_coef,
        )
        return losses.total, torch.stack([getattr(losses, name) for name in REPORTED])

    gradient, reported = _gradient(total, params)
    norm = ppo.global_norm(torch, [gradient])
    return gradient * ppo.clip_scale(torch, norm, hp.max_grad_norm), torch.cat([reported, norm[None]])


def _gradient(total: Callable[[Tensor], tuple[Tensor, Tensor]], params: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the first of what `total` returns, and the second."""
    if torch.compiler.is_compiling():
        # A graph can be made of the functional form alone; operation by operation the tape is a third faster.
        gradient, reported = torch.func.grad(total, has_aux=True)(params)
        return gradient, reported
    with torch.enable_grad():
        loss, reported = total(params)
    return torch.autograd.grad(loss, params)[0], reported.detach()


def _allocate(network: NetworkSpec, hp: Hyperparameters, dtype: torch.dtype, device: torch.device) -> Storage:
    rows, lanes = (hp.num_steps + 1, hp.num_envs), network.num_actions

    def zeros(*shape: int, dtype: torch.dtype = dtype) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=device)

    return Storage(
        obs=zeros(*rows, *network.input_shape, dtype=torch.uint8 if network.uint8 else dtype),
        actions=zeros(*rows, dtype=torch.int64) if network.discrete else zeros(*rows, lanes),
        heads=zeros(*rows, lanes),
        values=zeros(*rows),
    )
