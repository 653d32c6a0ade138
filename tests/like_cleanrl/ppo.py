"""PPO in the shape of CleanRL's scripts: one file, one loop, and variables named as `equivalence against=` reads them.

The text is our own. Like theirs, it normalises advantages and clips gradients as PyTorch does by default.
"""

import sys
from dataclasses import dataclass, fields
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions.categorical import Categorical
from torch.utils.tensorboard import SummaryWriter


@dataclass
class Args:
    seed: int = 1
    env_id: str = "CartPole-v1"
    total_timesteps: int = 500000
    learning_rate: float = 2.5e-4
    num_envs: int = 4
    num_steps: int = 128
    anneal_lr: bool = True
    gamma: float = 0.99
    gae_lambda: float = 0.95
    num_minibatches: int = 4
    update_epochs: int = 4
    norm_adv: bool = True
    clip_coef: float = 0.2
    clip_vloss: bool = True
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    max_grad_norm: float = 0.5


def parsed(words: list[str]) -> Args:
    """The arguments `--name value`, `--name=value`, `--name` and `--no-name`; of several the last."""
    kinds, args = {field.name: type(getattr(Args, field.name)) for field in fields(Args)}, Args()
    words = [part for word in words for part in word.split("=", 1)]
    while words:
        name = words.pop(0).removeprefix("--").replace("-", "_")
        if name.startswith("no_") or kinds[name] is bool:
            setattr(args, name.removeprefix("no_"), not name.startswith("no_"))
        else:
            setattr(args, name, kinds[name](words.pop(0)))
    return args


class Agent(nn.Module):
    def __init__(self, observations: int, actions: int) -> None:
        super().__init__()
        self.critic, self.actor = (
            nn.Sequential(nn.Linear(observations, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
            for outputs in (1, actions)
        )


if __name__ == "__main__":
    args = parsed(sys.argv[1:])
    writer = SummaryWriter("runs")
    envs: Any = gym.vector.SyncVectorEnv([lambda: gym.make(args.env_id) for _ in range(args.num_envs)])
    agent = Agent(envs.single_observation_space.shape[0], int(envs.single_action_space.n))
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    size = args.num_steps, args.num_envs
    obs = torch.zeros((*size, *envs.single_observation_space.shape))
    actions, logprobs, rewards, dones, values = (torch.zeros(size) for _ in range(5))
    next_obs = torch.Tensor(envs.reset(seed=args.seed)[0])
    next_done = torch.zeros(args.num_envs)
    batch_size = args.num_steps * args.num_envs
    num_iterations = args.total_timesteps // batch_size
    for iteration in range(1, num_iterations + 1):
        if args.anneal_lr:
            optimizer.param_groups[0]["lr"] = (1 - (iteration - 1) / num_iterations) * args.learning_rate
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                policy = Categorical(logits=agent.actor(next_obs))
                action = policy.sample()
                values[step] = agent.critic(next_obs).flatten()
            actions[step], logprobs[step] = action, policy.log_prob(action)
            seen, reward, terminated, truncated, _ = envs.step(action.numpy())
            next_obs, next_done = torch.Tensor(seen), torch.Tensor(terminated | truncated)
            rewards[step] = torch.tensor(reward)
        with torch.no_grad():
            following = torch.cat([values[1:], agent.critic(next_obs).reshape(1, -1)])
        going_on = 1 - torch.cat([dones[1:], next_done[None]])
        advantages, advantage = torch.zeros_like(rewards), torch.zeros(args.num_envs)
        for t in reversed(range(args.num_steps)):
            error = rewards[t] + args.gamma * following[t] * going_on[t] - values[t]
            advantages[t] = advantage = error + args.gamma * args.gae_lambda * going_on[t] * advantage
        b_obs, b_actions, b_logprobs = obs.flatten(0, 1), actions.flatten(), logprobs.flatten()
        b_advantages, b_values, b_returns = advantages.flatten(), values.flatten(), (advantages + values).flatten()
        b_inds = np.arange(batch_size)
        for epoch in range(args.update_epochs):  # noqa: B007 (np.random.shuffle reads it)
            np.random.shuffle(b_inds)
            for start in range(0, batch_size, batch_size // args.num_minibatches):
                mb = b_inds[start : start + batch_size // args.num_minibatches]
                policy = Categorical(logits=agent.actor(b_obs[mb]))
                logratio = policy.log_prob(b_actions[mb]) - b_logprobs[mb]
                ratio = logratio.exp()
                old_approx_kl, approx_kl = -logratio.mean(), (ratio - 1 - logratio).mean()
                scaled = b_advantages[mb]
                if args.norm_adv:
                    scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-8)
                clipped = torch.clamp(ratio, 1 - args.clip_coef, 1 + args.clip_coef)
                pg_loss = torch.max(-scaled * ratio, -scaled * clipped).mean()
                value = agent.critic(b_obs[mb]).flatten()
                near = b_values[mb] + torch.clamp(value - b_values[mb], -args.clip_coef, args.clip_coef)
                errors = (value - b_returns[mb]) ** 2
                if args.clip_vloss:
                    errors = torch.max(errors, (near - b_returns[mb]) ** 2)
                v_loss, entropy_loss = 0.5 * errors.mean(), policy.entropy().mean()
                loss = pg_loss - args.ent_coef * entropy_loss + args.vf_coef * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), args.max_grad_norm)
                optimizer.step()
        writer.add_scalar("charts/learning_rate", optimizer.param_groups[0]["lr"], iteration * batch_size)
    writer.close()
