"""The text of a user's module with networks in PyTorch and Flax, right and wrong ones."""

from __future__ import annotations

NETS = """
import flax.linen
import jax
import jax.numpy as jnp
import torch
from torch import nn


class Plain(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.policy = nn.Linear(observation_space.shape[0], int(action_space.n))
        self.value = nn.Linear(observation_space.shape[0], 1)

    def forward(self, obs):
        return self.policy(obs), self.value(obs)


class Buffered(Plain):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.register_buffer("scale", torch.ones(1))


class Frozen(Plain):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.value.weight.requires_grad_(False)


class Dropping(Plain):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.drop = nn.Dropout(0.5)

    def forward(self, obs):
        return super().forward(self.drop(obs))


class Batched(Dropping):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.drop = nn.BatchNorm1d(self.policy.in_features, track_running_stats=False)


class Scaled(Plain):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.scale = torch.tensor(2.0)


class NoValue(Plain):
    def forward(self, obs):
        return self.policy(obs)


class Wide(Plain):
    def forward(self, obs):
        return self.policy(obs), self.policy(obs)


class Remembering(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.cell = nn.GRUCell(observation_space.shape[0], 16)
        self.policy, self.value = nn.Linear(16, int(action_space.n)), nn.Linear(16, 1)

    def initial_carry(self):
        return {"hidden": torch.zeros(16)}

    def forward(self, obs, carry, episode_start):
        hidden = self.cell(obs, carry["hidden"] * (1 - episode_start)[:, None])
        return self.policy(hidden), self.value(hidden), {"hidden": hidden}


class Ones(Remembering):
    def initial_carry(self):
        return {"hidden": torch.ones(16)}


class ForABatch(Remembering):
    def initial_carry(self, batch):
        return {"hidden": torch.zeros(batch, 16)}


class Tupled(Remembering):
    def forward(self, obs, carry, episode_start):
        *outputs, carry = super().forward(obs, carry, episode_start)
        return *outputs, (carry["hidden"],)


class Renaming(Remembering):
    def forward(self, obs, carry, episode_start):
        *outputs, carry = super().forward(obs, carry, episode_start)
        return *outputs, {"state": carry["hidden"]}


class Lazy(Plain):
    def __init__(self, *spaces):
        super().__init__(*spaces)
        self.value = nn.LazyLinear(1)


class Constant(nn.Module):
    def __init__(self, *spaces):
        super().__init__()

    def forward(self, obs):
        return obs[:, :2], obs[:, 0]


class FlaxBatch(flax.linen.Module):
    observation_space: object
    action_space: object

    @flax.linen.compact
    def __call__(self, obs):
        x = flax.linen.BatchNorm(use_running_average=True)(obs)
        return flax.linen.Dense(int(self.action_space.n))(x), flax.linen.Dense(1)(x)


class FlaxPlain(flax.linen.Module):
    observation_space: object
    action_space: object

    @flax.linen.compact
    def __call__(self, obs):
        logits = flax.linen.Dense(int(self.action_space.n), name="policy")(obs)
        return logits, flax.linen.Dense(1, name="value")(obs)


class FlaxDotted(FlaxPlain):
    @flax.linen.compact
    def __call__(self, obs):
        x = flax.linen.Dense(8, name="trunk.0")(obs)
        return flax.linen.Dense(int(self.action_space.n), name="actor.0")(x), flax.linen.Dense(1, name="critic.0")(x)


class FlaxRemembering(FlaxPlain):
    def initial_carry(self):
        return {"state": jnp.zeros(16)}
"""
