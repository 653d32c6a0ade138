"""Patches of ppo_rnd_envpool.py alone: its random numbers, and the differences of its statistics."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from gymnasium.wrappers.utils import RunningMeanStd

from ppo_bench.commands.equivalence.cleanrl.envpool_compat import Pool
from ppo_bench.commands.equivalence.cleanrl.envpool_compat import install as install_envpool
from ppo_bench.commands.equivalence.cleanrl.script import install_module, patch
from ppo_bench.commands.equivalence.cleanrl.torch_patches import action_noise
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.mathematics import noise


def install(script: TorchScript) -> None:
    """Replace random numbers, environments, and the classes that the statistics of RND are computed with."""
    rnd = Rnd(script)
    install_envpool(script, WarmedPool)
    install_module("gym.wrappers.normalize", RunningMeanStd=functools.partial(Statistics, rnd))
    script.when_built.append(rnd.install)

    @patch(np.random, "randint")
    def warmup_actions(original: Any, low: int, high: int, size: tuple[int]) -> Any:
        """Actions of a uniform policy, with the noise of iterations before the first."""
        iteration, step = divmod(len(script.resets), script.ppo.num_steps)
        return action_noise(script, iteration - script.config.algorithm.num_warmup_rollouts)[step].argmax(-1).numpy()

    @patch(torch, "rand")
    def rand(original: Any, *size: Any, **options: Any) -> Any:
        """A uniform number for each transition of a minibatch; small ones teach the predictor."""
        one, ppo = torch.ones(1, dtype=torch.int32), script.ppo
        steps, envs = (torch.arange(size, dtype=torch.int32) for size in (ppo.num_steps, ppo.num_envs))
        keys = (one * script.root.seed, one * script.iteration, steps, envs, one * script.variables["epoch"])
        words, _ = noise.action_words(torch, *keys, noise.Stream.TRANSITIONS)
        return noise.uniform(torch, words.ravel()[script.variables["mb_inds"]], torch.get_default_dtype())


class Rnd:
    """The script's statistics and intrinsic rewards, and the corrections of both."""

    def __init__(self, script: TorchScript) -> None:
        self.script = script
        self.counted = False
        """Whether the statistics of observations have counted the rollout already."""
        self.sums = np.zeros(0)
        """Running sums of intrinsic rewards, `[T, N]`."""

    def install(self) -> None:
        """Replace the script's `RewardForwardFilter`, and the inputs of `rnd_model`."""
        own = self.script.variables
        own["RewardForwardFilter"] = functools.partial(RewardForwardFilter, self)

        @patch(own["rnd_model"], "forward")
        def forward(original: Any, x: Any) -> Any:
            return original(self.inputs()[own["mb_inds"]])

    @property
    def next_frames(self) -> torch.Tensor:
        """The last frame after each transition, `[T N, 1, 84, 84]`."""
        own = self.script.variables
        return torch.cat([own["obs"][1:], own["next_obs"][None]])[:, :, 3:].flatten(0, 1)

    def inputs(self) -> torch.Tensor:
        """The same, normalised."""
        moments = self.script.variables["obs_rms"]
        mean, var = (torch.from_numpy(np.asarray(moment)) for moment in (moments.mean, moments.var))
        normalized = ((self.next_frames - mean) / torch.sqrt(var)).clip(-5, 5)
        return normalized.to(torch.get_default_dtype()).reshape(-1, 1, 84, 84)

    @torch.no_grad()
    def count_and_recompute(self) -> None:
        """Update the statistics of observations, and compute the intrinsic rewards with them."""
        own = self.script.variables
        own["obs_rms"].update(own["obs"].flatten(0, 1)[:, 3:].numpy())
        model, rewards = own["rnd_model"], own["curiosity_rewards"]
        for row, x in zip(rewards, self.inputs().unflatten(0, rewards.shape), strict=True):
            row.copy_((model.target(x) - model.predictor(x)).pow(2).sum(1) / 2)
        self.counted = True


class WarmedPool(Pool):
    """A pool that begins again after the warm-up."""

    def step(self, action: Any) -> Any:
        """See `Pool.step`."""
        answer = super().step(action)
        warmup = self._script.ppo.num_steps * self._script.config.algorithm.num_warmup_rollouts
        if len(self._script.resets) == warmup:
            answer = tuple(np.copy(part) if isinstance(part, np.ndarray) else part for part in answer)
            self._pool.close()
            self.begin()
            self._pool.reset()
        return answer


class Statistics(RunningMeanStd):
    """The script's running statistics, of observations (with a shape) or of intrinsic returns."""

    def __init__(self, rnd: Rnd, epsilon: float = 1e-4, shape: tuple[int, ...] = ()) -> None:
        super().__init__(epsilon, shape)
        self._rnd, self._of_frames = rnd, bool(shape)

    def update(self, x: np.ndarray) -> None:
        """Take in frames, unless they were counted already."""
        if self._rnd.counted:
            self._rnd.counted = False
        elif "update" in self._rnd.script.variables:
            super().update(self._rnd.next_frames.numpy())
        else:  # the warm-up
            super().update(np.asarray(x, np.float64))

    def update_from_moments(self, mean: Any, var: Any, count: int) -> None:
        """Take in intrinsic returns, all of the rollout's."""
        if not self._of_frames:
            sums = self._rnd.sums
            mean, var, count = sums.mean(), sums.var(), sums.size
        super().update_from_moments(mean, var, count)


class RewardForwardFilter:
    """The script's class of this name, which it calls once for each environment after a rollout."""

    def __init__(self, rnd: Rnd, gamma: float) -> None:
        self._rnd, self._gamma, self._next_env = rnd, gamma, 0
        self._last: Any = 0.0

    def update(self, _: np.ndarray) -> np.ndarray:
        """Running sums `[T]` of the next environment."""
        script = self._rnd.script
        if self._next_env == 0:
            self._rnd.count_and_recompute()
            sums = []
            for row in script.variables["curiosity_rewards"].numpy().astype(np.float64):
                self._last = self._last * self._gamma + row
                sums.append(self._last)
            self._rnd.sums = np.array(sums)
        column: np.ndarray = self._rnd.sums[:, self._next_env]
        self._next_env = (self._next_env + 1) % script.num_envs
        return column
