"""PPO executed by PyTorch, with environments on the host."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ppo_bench import noise, ppo
from ppo_bench.errors import ConfigError
from ppo_bench.idle_threads import products_by_all_threads
from ppo_bench.networks import torch as networks
from ppo_bench.networks.spec import NetworkSpec
from ppo_bench.precision import NO_TF32, PRECISIONS, Precision
from ppo_bench.runners.base import Arrays, Episode, Metrics, Problem, fitting, has_nvidia_gpu
from ppo_bench.runners.cuda_graphs import Replayed, Step, direct
from ppo_bench.runners.memory import asks_for_huge_pages, keep_freed_memory
from ppo_bench.runners.rollout import HostEnvs, Rollout, RolloutState
from ppo_bench.runners.torch_adam import Adam
from ppo_bench.runners.torch_learning import (
    REPORTED,
    Batch,
    Storage,
    advantages_and_targets,
    allocate,
    clipped_gradient,
    policy,
)
from ppo_bench.weights import initial_weights

MOMENTS = ("adam.mean", "adam.variance")
WIDE = 2**17
"""Weights of a linear layer whose products threads share with gain: 512 x 512, not 256 x 256 (docs/performance.md)."""

Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What is done to a function before it is used: nothing, or `torch.compile`."""


@dataclass
class TorchState:
    """Everything that changes from one iteration to the next."""

    seed: int
    iteration: int
    """Iterations done."""
    params: Tensor
    """`[P]`, every parameter."""
    views: networks.Params
    """The same by name; see `networks.named_views`."""
    adam: Adam
    envs: RolloutState


class TorchRunner:
    """A `Runner`; see ppo_bench/runners/base.py."""

    def __init__(
        self,
        problem: Problem,
        num_threads: int | None,
        compiler: Compiler | None = None,
        cuda_graphs: bool | None = False,
    ) -> None:
        """`cuda_graphs=None` takes them on a GPU."""
        self._network = problem.network
        self._ppo = problem.ppo
        self._num_iterations = problem.num_iterations
        precision = PRECISIONS[problem.precision]
        self._dtype, layers = getattr(torch, precision.parameters), getattr(torch, precision.layers)
        self._device = pick_device(problem.device, precision)
        on_gpu = self._device.type == "cuda"
        if on_gpu:
            torch.cuda.set_device(self._device.index or 0)  # where streams and graphs are made
        if cuda_graphs and not on_gpu:
            raise ConfigError(f"framework.cudagraphs=true needs a GPU, not device={self._device}: use auto or false")
        self._envs = HostEnvs(problem.env, problem.network, problem.ppo)
        set_threads(problem.network, num_threads)
        self._replays = replay = on_gpu if cuda_graphs is None else cuda_graphs
        self.execution = {
            "device": str(self._device),
            "threads": torch.get_num_threads(),
            "precision": set_precision(precision),
            "cuda_graphs": replay,
            "keeps_freed_memory": not on_gpu and keep_freed_memory(),
            "asks_for_huge_pages": asks_for_huge_pages(),
        } | ({"gpu": torch.cuda.get_device_name(self._device)} if on_gpu else {})
        compiled: Compiler = compiler or (lambda function: function)
        # On a CPU, calling a compiled policy costs more than it saves: 43 against 25 microseconds for CartPole's.
        act = functools.partial(policy, self._network, layers)
        self._storage = allocate(self._network, self._ppo, self._dtype, self._device)
        self._rows = [Storage(*row) for row in zip(*(array.unbind() for array in self._storage), strict=True)]
        advantages = functools.partial(advantages_and_targets, self._network, self._ppo, self._storage)
        gradient = compiled(functools.partial(clipped_gradient, self._network, layers, self._ppo))
        learn = functools.partial(_learn, gradient)
        self._noise: Step = Replayed(self._action_noise) if replay else direct(self._action_noise)
        self._policy: Step = Replayed(compiled(act)) if replay else direct(compiled(act) if on_gpu else act)
        self._advantages: Step = Replayed(advantages) if replay else direct(advantages)
        self._learn: Step = Replayed(learn, changed=_learnt) if replay else direct(learn)
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
        flags = (rollout.rewards, rollout.terminated, rollout.truncated, rollout.real)
        on_device = (torch.from_numpy(array).to(self._device, self._dtype) for array in flags)
        batch, explained_variance = self._advantages((state.views,), *on_device)
        losses = self._update(state, batch, iteration, learning_rate)
        state.iteration = iteration
        metrics = Metrics(
            learning_rate=learning_rate,
            explained_variance=float(explained_variance),
            masked_fraction=1.0 - float(np.mean(rollout.real)),
            **losses,
        )
        return state, metrics, rollout.episodes

    @torch.inference_mode()
    def _collect(self, state: TorchState, iteration: int) -> tuple[RolloutState, Rollout]:
        """The rollout; observations, heads, actions and values end up in the storage."""
        fixed = (state.views,)
        noise_of_step = self._noise((), self._scalar(state.seed), self._scalar(iteration)).unbind()

        def act(t: int, obs: np.ndarray) -> np.ndarray:
            row = self._rows[t]
            # Moved as they lie, and then arranged on the device: channels come last there, in EnvPool first.
            row.obs.copy_(torch.from_numpy(obs).to(self._device))
            actions, head, value = self._policy(fixed, row.obs, noise_of_step[t])
            row.actions.copy_(actions)
            row.heads.copy_(head)
            row.values.copy_(value)
            return actions.cpu().numpy()

        envs, rollout = self._envs.collect(state.envs, act)
        act(self._ppo.num_steps, envs.obs)  # for the value of the last observations
        return envs, rollout

    def _action_noise(self, seed: Tensor, iteration: Tensor) -> Tensor:
        """The noise of a whole iteration `[T + 1, N, A]`: Gumbel for categorical policies, else standard normal."""
        words = noise.action_words(torch, seed, iteration, self._steps, self._env_ids, self._lanes)
        variates = noise.gumbel if self._network.discrete else noise.normal
        return variates(torch, words, self._dtype)

    @products_by_all_threads()
    @torch.no_grad()
    def _update(self, state: TorchState, batch: Batch, iteration: int, learning_rate: float) -> dict[str, float]:
        """Every epoch and minibatch; the means of what they measured."""
        hp = self._ppo
        state.adam.learning_rate.fill_(learning_rate)
        permutations = noise.permutations(
            torch, self._scalar(state.seed), self._scalar(iteration), self._epochs, self._indices
        )
        measured: list[Tensor] = []
        for permutation in permutations.view(hp.update_epochs, hp.num_minibatches, hp.minibatch_size):
            measured += [self._learn((state, batch), rows).clone() for rows in permutation]
            if hp.target_kl is not None and measured[-1][REPORTED.index("approx_kl")] > hp.target_kl:
                break
        means = torch.stack(measured).mean(0).tolist()
        return dict(zip((*REPORTED, "gradient_norm"), means, strict=True))

    def _scalar(self, value: int) -> Tensor:
        return torch.full((1,), value, dtype=torch.int32, device=self._device)

    # --- Beginning, leaving and taking up again -----------------------------------------------------------------------

    def init(self, seed: int) -> TorchState:
        """See `Runner.init`."""
        params = self._vector(list(initial_weights(self._network.parameters, seed).values()))
        moments = [torch.zeros_like(params) for _ in MOMENTS]
        return self._state(seed, 0, params, 0, moments, self._envs.start(seed, 0))

    def _state(
        self, seed: int, iteration: int, params: Tensor, steps: int, moments: list[Tensor], envs: RolloutState
    ) -> TorchState:
        """A state whose Adam has made `steps` steps. The learning rate is set before every update."""
        # The fused kernel of a GPU reads the learning rate as float32, which is too coarse for float64.
        fused = self._device.type != "cuda" or self._dtype != torch.float64
        coarse = self._device.type == "cuda" and fused
        learning_rate = torch.zeros((), dtype=torch.float32 if coarse else torch.float64, device=self._device)
        # The fused kernels want a count in float32; Adam by operations takes powers of it in its own type.
        count = torch.tensor(float(steps), dtype=torch.float32 if fused else torch.float64, device=self._device)
        capturable = self._replays or not fused
        mean, variance = moments
        adam = Adam(mean, variance, count, learning_rate, self._ppo.adam_eps, fused, capturable)
        views = networks.named_views(params.detach(), self._network)
        return TorchState(seed, iteration, params.requires_grad_(), views, adam, envs)

    def _vector(self, arrays: list[np.ndarray]) -> Tensor:
        flat = np.concatenate([array.ravel() for array in arrays])
        return torch.from_numpy(flat).to(self._device, self._dtype)

    def export(self, state: TorchState) -> Arrays:
        """See `Runner.export`."""
        adam = state.adam
        vectors = dict(zip(("params", *MOMENTS), (state.params.detach(), adam.mean, adam.variance), strict=True))
        arrays = {
            f"{kind}.{name}": view.cpu().numpy().copy()
            for kind, vector in vectors.items()
            for name, view in networks.named_views(vector, self._network).items()
        }
        counters = {"seed": state.seed, "iteration": state.iteration, "adam.step": int(adam.count)}
        return arrays | {name: np.array(value) for name, value in counters.items()} | HostEnvs.export(state.envs)

    def restore(self, arrays: Arrays, carried: bool = False) -> TorchState:
        """See `Runner.restore`."""
        params, *moments = (
            self._vector([fitting(arrays, f"{kind}.{p.name}", p.shape) for p in self._network.parameters])
            for kind in ("params", *MOMENTS)
        )
        seed, iteration, steps = (int(fitting(arrays, name, ())) for name in ("seed", "iteration", "adam.step"))
        envs = self._envs.restore(arrays, seed, iteration, carried)
        return self._state(seed, iteration, params, steps, moments, envs)

    def restart(self, state: TorchState, iteration: int) -> TorchState:
        """See `Runner.restart`."""
        state.envs = self._envs.restart(state.envs, state.seed, iteration)
        return state

    def close(self) -> None:
        """See `Runner.close`."""
        self._envs.close()


def _learn(gradient: Callable[..., tuple[Tensor, Tensor]], state: TorchState, batch: Batch, rows: Tensor) -> Tensor:
    """One step of Adam on the transitions `rows`; what `clipped_gradient` measured."""
    clipped, measured = gradient(state.params, batch, rows)
    state.adam.step(state.params, clipped)
    return measured


def _learnt(state: TorchState, batch: Batch) -> list[Tensor]:
    """What `_learn` writes to."""
    return [state.params.detach(), state.adam.mean, state.adam.variance, state.adam.count]


def pick_device(device: str, precision: Precision) -> torch.device:
    """The device that `device` (auto, cpu, cuda, cuda:<i>) names. Raises `ConfigError` if it does not do."""
    if device == "auto":
        if has_nvidia_gpu() and not torch.cuda.is_available():
            raise ConfigError(
                "device=auto: this machine has an NVIDIA GPU and PyTorch sees none: install a CUDA build of torch, "
                "or use device=cpu"
            )
        device = "cuda" if torch.cuda.is_available() else "cpu"
    picked = torch.device(device)
    if picked.type == "cuda" and (picked.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device={device}: PyTorch sees {torch.cuda.device_count()} CUDA devices; use device=cpu")
    if precision.tf32 and not (picked.type == "cuda" and torch.cuda.get_device_capability(picked) >= (8, 0)):
        raise ConfigError(NO_TF32)
    return picked


def set_threads(network: NetworkSpec, num_threads: int | None) -> None:
    """Threads of the whole process; None takes one for networks of narrow linear layers, all for others."""
    wide = any(math.prod(parameter.shape) >= WIDE for parameter in network.parameters)
    if num_threads or not (network.convolutions or wide):
        torch.set_num_threads(num_threads or 1)


def set_precision(precision: Precision) -> dict[str, object]:
    """Make PyTorch compute as `precision` says; what is recorded of that."""
    torch.set_float32_matmul_precision("high" if precision.tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = precision.tf32  # on by default, unlike that of products
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    flags = {
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
    }
    return precision._asdict() | flags
