"""Patches of ppo_rnd_envpool.py alone: its random numbers, and the differences of its statistics."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from ppo_bench.commands.equivalence.cleanrl import envpool_compat
from ppo_bench.commands.equivalence.cleanrl.gym_compat import RunningMeanStd
from ppo_bench.commands.equivalence.cleanrl.randomness import ActionNoise
from ppo_bench.commands.equivalence.cleanrl.torch_script import TorchScript
from ppo_bench.mathematics import noise


def install(script: TorchScript) -> None:
    """Replace classes and functions that the script uses, and two of its own when it makes its optimizer."""
    rnd = Rnd(script)
    script.used.update(("action noise", "taught", "normalize"))
    np.random.randint = rnd.warm_up_actions  # type: ignore[assignment]
    own_rand = torch.rand
    torch.rand = lambda *size, **options: rnd.draws() if script.variables else own_rand(*size, **options)
    envpool_compat.install(script, lambda *given: WarmedPool(rnd, *given))
    module: Any = sys.modules["gym.wrappers.normalize"]
    module.RunningMeanStd = lambda epsilon=1e-4, shape=(): Statistics(rnd, epsilon, shape)
    own_load = script.load_weights

    def load_weights() -> None:
        own, model = script.own, script.own["rnd_model"]
        own["RewardForwardFilter"] = lambda gamma: Sums(rnd, gamma)
        own_forward = model.forward
        model.forward = lambda x: own_forward(rnd.inputs()[script.own["mb_inds"]] if script.uses("rnd-next") else x)
        own_load()

    script.load_weights = load_weights  # type: ignore[method-assign]


class Rnd:
    """What the patches know of each other."""

    def __init__(self, script: TorchScript) -> None:
        self.script = script
        self.counted = False
        """Whether the statistics of observations have counted the rollout already."""
        self.sums = np.zeros(0)
        """Running sums of intrinsic rewards, `[T, N]`."""
        self._noise, self._warm_up_steps = ActionNoise(script), 0

    def warm_up_actions(self, low: int, high: int, size: tuple[int]) -> np.ndarray:
        """Actions of a policy that is uniform, with the noise of iterations before the first."""
        iteration, step = divmod(self._warm_up_steps, self.script.supply.num_steps)
        self._warm_up_steps += 1
        return self._noise.at(iteration - self.script.supply.warm_up, step).argmax(-1).numpy()

    def draws(self) -> torch.Tensor:
        """A uniform number for each transition of a minibatch; small ones teach the predictor."""
        supply, rows, one = self.script.supply, self.script.own["mb_inds"], torch.ones(1, dtype=torch.int32)
        steps, envs = (torch.arange(size, dtype=torch.int32) for size in (supply.num_steps, supply.num_envs))
        keys = (one * supply.seed, one * self.script.iteration, steps, envs, one * self.script.own["epoch"])
        words, _ = noise.action_words(torch, *keys, noise.Stream.TRANSITIONS)
        uniform: torch.Tensor = noise.uniform(torch, words.ravel()[rows], torch.get_default_dtype())
        return uniform

    @property
    def next_frames(self) -> torch.Tensor:
        """The last frame after each transition, `[T N, 1, 84, 84]`."""
        own = self.script.own
        return torch.cat([own["obs"][1:], own["next_obs"][None]])[:, :, 3:].flatten(0, 1)

    def inputs(self) -> torch.Tensor:
        """The same, normalised."""
        moments = self.script.own["obs_rms"]
        mean, var = (torch.from_numpy(np.asarray(moment)) for moment in (moments.mean, moments.var))
        return (
            ((self.next_frames - mean) / torch.sqrt(var))
            .clip(-5, 5)
            .to(torch.get_default_dtype())
            .reshape(-1, 1, 84, 84)
        )

    @torch.no_grad()
    def count_and_recompute(self) -> None:
        """Update the statistics of observations, and compute the intrinsic rewards with them."""
        own = self.script.own
        own["obs_rms"].update(own["obs"].flatten(0, 1)[:, 3:].numpy())
        model, rewards = own["rnd_model"], own["curiosity_rewards"]
        for row, x in zip(rewards, self.inputs().unflatten(0, rewards.shape), strict=True):
            row.copy_((model.target(x) - model.predictor(x)).pow(2).sum(1) / 2)
        self.counted = True


class WarmedPool(envpool_compat.Pool):
    """A pool that begins anew after the warm-up."""

    def __init__(self, rnd: Rnd, *given: Any) -> None:
        super().__init__(*given)
        self._left = rnd.script.supply.num_steps * rnd.script.supply.warm_up

    def step(self, actions: Any) -> Any:
        """See `Pool.step`."""
        answer = super().step(actions)
        self._left -= 1
        if self._left == 0 and self._script.uses("rnd-start"):
            answer = tuple(np.copy(part) if isinstance(part, np.ndarray) else part for part in answer)
            self._pool.close()
            self.begin()
            self._pool.reset()
        return answer


class Statistics(RunningMeanStd):
    """The script's running statistics, of observations (with a shape) or of intrinsic returns."""

    def __init__(self, rnd: Rnd, epsilon: float, shape: tuple[int, ...]) -> None:
        super().__init__(epsilon, shape)
        self._rnd, self._of_frames = rnd, bool(shape)

    def update(self, x: np.ndarray) -> None:
        """Take in frames, unless they were counted already."""
        if self._rnd.counted:
            self._rnd.counted = False
        elif "update" in self._rnd.script.own and self._rnd.script.uses("rnd-next"):
            super().update(self._rnd.next_frames.numpy())
        else:  # the warm-up, or as the script does it
            super().update(np.asarray(x, np.float64))

    def update_from_moments(self, mean: Any, var: Any, count: int) -> None:
        """See `RunningMeanStd.update_from_moments`."""
        if not self._of_frames and self._rnd.script.uses("rnd-stats"):
            sums = self._rnd.sums
            mean, var, count = sums.mean(), sums.var(), sums.size
        super().update_from_moments(mean, var, count)


class Sums:
    """The script's `RewardForwardFilter`, which it calls once for each environment after a rollout."""

    def __init__(self, rnd: Rnd, gamma: float) -> None:
        self._rnd, self._gamma, self._next_env = rnd, gamma, 0
        self._last: Any = 0.0

    def update(self, _: np.ndarray) -> np.ndarray:
        """Running sums `[T]` of the next environment."""
        script = self._rnd.script
        if self._next_env == 0:
            if script.uses("rnd-stats"):
                self._rnd.count_and_recompute()
            rewards = script.own["curiosity_rewards"].numpy().astype(np.float64)
            over_time = script.uses("rnd-sum")
            sums = []
            for row in rewards if over_time else rewards.T:
                self._last = self._last * self._gamma + row
                sums.append(self._last)
            self._rnd.sums = np.array(sums if over_time else np.transpose(sums))
        column: np.ndarray = self._rnd.sums[:, self._next_env]
        self._next_env = (self._next_env + 1) % script.num_envs
        return column
