"""Variants of PPO with one deliberate mistake each."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from tests.transcription import Ppo


class MeanOfAllRows(Ppo):
    def mean(self, x: Tensor) -> Tensor:
        return x.sum() / self.hp.minibatch_size


class LengthWithAnEpsilon(Ppo):
    """The epsilon that `torch.nn.utils.clip_grad_norm_` adds to the length."""

    def shrinking(self, norm: Tensor) -> Tensor:
        return self.hp.max_grad_norm / (norm + 1e-6)


class DeviationOfASample(Ppo):
    def deviation(self, x: Tensor) -> Tensor:
        return x.std(unbiased=True)


class LimitsAreEnds(Ppo):
    def ends_for_good(self, terminated: bool, truncated: bool) -> bool:
        return terminated or truncated


class ResetsBeginEachRollout(Ppo):
    """The last steps of the rollout before are forgotten."""

    def steps_that_count(self, done: np.ndarray) -> np.ndarray:
        value_mask = super().steps_that_count(done)
        value_mask[:: self.hp.num_steps] = True
        return value_mask


class OtherObservationsCount(Ppo):
    def observations_that_count(self, final: np.ndarray) -> np.ndarray:
        return ~final if super().observations_that_count(final).all() else np.ones_like(final)
