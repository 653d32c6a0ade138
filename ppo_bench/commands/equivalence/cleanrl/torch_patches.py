"""Patches of PyTorch and NumPy for scripts in PyTorch: float64, supplied random numbers, known differences."""

from __future__ import annotations

import functools
import os
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributions.categorical import Categorical
from torch.distributions.normal import Normal

from ppo_bench.commands.equivalence.cleanrl.script import Script, calling_frame, install_module, patch
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.common.rank_info import STORE
from ppo_bench.mathematics import noise


def install(script: TorchScript) -> None:
    """Install all patches of this module."""
    if script.root.precision == "float64":
        _widen_to_float64()
    _supply_weights_and_noise(script)
    _supply_permutations(script)
    _correct_clipping_and_deviation(script)
    if not script.spec.logs:
        _patch_leanrl(script)
    if script.spec.is_distributed:
        _patch_ranks(script)


def _widen_to_float64() -> None:
    """Make float64 the default of PyTorch, and what its names of float32 mean."""
    torch.set_default_dtype(torch.float64)
    for name in ("tensor", "as_tensor", "zeros"):

        @patch(torch, name)
        def make(original: Any, *arguments: Any, dtype: Any = None, **options: Any) -> Any:
            return original(*arguments, dtype=torch.float64 if dtype is torch.float32 else dtype, **options)

    vars(torch)["FloatTensor"] = torch.DoubleTensor
    patch(torch.Tensor, "float")(lambda original, self, *_: self.double())


# --- Random numbers, which follow from (seed, iteration, step, environment) -------------------------------------------


@functools.lru_cache(maxsize=1)
def action_noise(script: Script, iteration: int) -> torch.Tensor:
    """Noise `[T + 1, N, A]` of the policy's actions in an iteration."""
    network, one = script.training_spec.network, torch.ones(1, dtype=torch.int32)
    sizes = (script.ppo.num_steps + 1, script.num_envs, network.actions.action_dim)
    steps, envs, lanes = (torch.arange(size, dtype=torch.int32) for size in sizes)
    keys = (one * script.root.seed, one * iteration, steps)
    words = noise.action_words(torch, *keys, envs + script.first_env, lanes)
    variates = noise.gumbel if network.discrete else noise.normal
    drawn: torch.Tensor = variates(torch, words, torch.get_default_dtype())
    return drawn


def noise_now(script: Script) -> torch.Tensor:
    """Noise `[N, A]` of the step that the script has reached."""
    return action_noise(script, script.iteration)[len(script.resets) % script.ppo.num_steps]


def permutation(script: Script, size: int) -> np.ndarray:
    """The permutation of this process's transitions `[size]` in the script's iteration and epoch."""
    steps, envs = (np.arange(count, dtype=np.int32) for count in (script.ppo.num_steps, script.num_envs))
    samples = (steps[:, None] * script.ppo.num_envs + script.first_env + envs).ravel()
    if size != len(samples):  # whole environments
        samples = np.arange(size, dtype=np.int32)
    one = np.ones(1, np.int32)
    keys = (one * script.root.seed, one * script.iteration, one * script.variables["epoch"])
    found: np.ndarray = noise.permutations(np, *keys, samples)[0]
    return found


def _supply_weights_and_noise(script: TorchScript) -> None:
    @patch(torch.optim.Adam, "__init__")
    def init(original: Any, self: Any, *arguments: Any, **options: Any) -> None:
        for function in script.when_built:
            function()
        original(self, *arguments, **options)

    patch(Categorical, "sample")(lambda original, self: torch.argmax(self.logits + noise_now(script), -1))
    patch(Normal, "sample")(lambda original, self: self.loc + self.scale * noise_now(script))


def _supply_permutations(script: TorchScript) -> None:
    """Supply the order of transitions, and leave steps that only reset an environment out of minibatches."""

    class Indices(np.ndarray):
        """Indices of transitions, whose slices leave out those that only reset an environment."""

        def __getitem__(self, key: Any) -> Any:
            taken = np.asarray(self)[key]
            if not isinstance(key, slice | tuple) or not script.drops_resets:
                return taken
            return taken.ravel()[script.value_mask.ravel()[taken.ravel()]]

        def split(self, size: int) -> list[Any]:
            """Slices of `size` transitions, one behind the other, as of a tensor."""
            return [self[k : k + size] for k in range(0, len(self), size)]

    @patch(np, "arange")
    def arange(original: Any, *arguments: Any, **options: Any) -> Any:
        made = original(*arguments, **options)
        is_batch = arguments == (script.num_envs * script.ppo.num_steps,)
        return made.view(Indices) if is_batch and calling_frame().f_globals is script.variables else made

    @patch(np.random, "shuffle")
    def shuffle(original: Any, x: Any) -> None:
        np.copyto(x.view(np.ndarray), permutation(script, len(x)))

    @patch(torch, "randperm")
    def randperm(original: Any, size: int, device: Any = None) -> Any:
        return permutation(script, size).astype(np.int64).view(Indices)

    if script.training_spec.network.learns_from_sequences:
        script.when_built.append(lambda: _take_whole_sequences(script))


def _take_whole_sequences(script: TorchScript) -> None:
    """Make a minibatch of a recurrent script run through whole sequences, and return the transitions of its indices."""
    own = script.variables

    @patch(own["agent"], "get_action_and_value")
    def get_action_and_value(original: Any, x: Any, lstm_state: Any, done: Any, action: Any = None) -> Any:
        if action is None or not script.drops_resets:
            return original(x, lstm_state, done, action)
        rows = np.asarray(own["flatinds"])[:, np.asarray(own["mbenvinds"])].ravel()
        *of_rows, state = original(own["b_obs"][rows], lstm_state, own["b_dones"][rows], own["b_actions"].long()[rows])
        value_mask = torch.from_numpy(script.value_mask.ravel()[rows])
        return *(each[value_mask] for each in of_rows), state


# --- Known differences ------------------------------------------------------------------------------------------------


def _correct_clipping_and_deviation(script: TorchScript) -> None:
    @patch(torch.Tensor, "std")
    def std(original: Any, self: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        if not arguments and not options:
            return original(self, correction=0)
        return original(self, *arguments, **options)

    @patch(torch.nn.utils, "clip_grad_norm_")
    def clip_grad_norm(original: Any, parameters: Any, max_norm: float) -> Any:
        parameters = list(parameters)
        gradients = [parameter.grad for parameter in parameters]
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients]))
        script.note_gradient(norm.item(), calling_frame().f_locals)
        for gradient in gradients:
            gradient.mul_(max_norm / torch.clamp(norm, min=max_norm))
        return norm


# --- Scripts that share a training, and scripts that log no end of an iteration ---------------------------------------


def _patch_leanrl(script: TorchScript) -> None:
    """Replace noise and wandb, and end an iteration with its last step of Adam."""
    install_module("wandb", init=lambda **_: None, log=lambda *_, **__: None)
    patch(torch, "randn_like")(lambda original, x: noise_now(script))
    script.end_with_last_minibatch()


def _patch_ranks(script: TorchScript) -> None:
    """Weight gradients, and end an iteration with its last step of Adam in a process that does not log."""

    @patch(dist, "init_process_group")
    def init_process_group(original: Any, backend: str, **options: Any) -> None:
        original(backend, init_method=f"file://{os.environ[STORE]}", **options)

    @patch(dist, "all_reduce")
    def all_reduce(original: Any, gradient: torch.Tensor, op: Any) -> None:
        count = torch.tensor(float(len(script.variables["mb_inds"])))
        total = count.clone()
        original(total)
        script.weight = float(script.part.count * count / total)
        gradient *= script.weight
        original(gradient, op=op)

    if script.part.index > 0:
        script.end_with_last_minibatch()
