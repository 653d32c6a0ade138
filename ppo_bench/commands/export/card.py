"""The model card of an exported run: the Hub's metadata as YAML, and how to use the policy."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Sequence
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from ppo_bench.configuration.config import Config

TEXT = """\
# PPO on {env_id}

A policy for `{env_id}`, trained by ppo_bench in {framework} for {steps:,} environment steps.{returns}

{video}
`DIR` stands for this folder, once it is downloaded.

```
python -m ppo_bench.evaluate DIR    # play it, in any framework: framework=jax_xla video=true
{command}    # train it again
```

```python
import ppo_bench

policy = ppo_bench.load("DIR")
actions = policy.act(observations)  # observations [N, ...] as the environments give them
```

`model.safetensors` holds parameters, Adam's moments and statistics under the names and in the layout that every
framework of ppo_bench loads; `config.json` holds the whole configuration, the versions and the machine.
"""


class Returns(NamedTuple):
    """Returns of episodes, and which episodes they are of."""

    values: Sequence[float]
    episodes: str

    @property
    def shown(self) -> str:
        """Mean and standard deviation."""
        return f"{statistics.fmean(self.values):.2f} ± {statistics.pstdev(self.values):.2f}"


def card(config: Config, steps: int, overrides: Sequence[str], returns: Returns | None, video: str | None) -> str:
    """The text of README.md; `overrides` train the same, and `video` is the name of the file that shows it."""
    text = TEXT.format(
        env_id=config.task.id,
        framework=config.framework.name,
        steps=steps,
        returns=f" Its return is {returns.shown}, mean ± standard deviation of {returns.episodes}." if returns else "",
        video=f'<video src="{video}" controls autoplay loop muted></video>\n' if video else "",
        command=shlex.join(["python", "-m", "ppo_bench", *overrides]),
    )
    return f"---\n{OmegaConf.to_yaml(OmegaConf.create(metadata(config, returns)))}---\n\n{text}"


def metadata(config: Config, returns: Returns | None) -> dict[str, Any]:
    """The Hub's metadata."""
    env_id = config.task.id
    about: dict[str, Any] = {
        "library_name": "ppo_bench",
        "pipeline_tag": "reinforcement-learning",
        "tags": [env_id, "ppo", "reinforcement-learning", "deep-reinforcement-learning", config.framework.name],
    }
    if returns:
        reward = {"type": "mean_reward", "name": "mean_reward", "value": returns.shown.replace("±", "+/-")}
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": task, "dataset": {"type": env_id, "name": env_id}, "metrics": [reward | {"verified": False}]}
        about["model-index"] = [{"name": f"PPO on {env_id}", "results": [result]}]
    return about
