"""The model card of an exported run: the Hub's metadata as YAML, and what a reader wants to know."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from ppo_bench.configuration.config import Config

TEXT = """\
# PPO on {env_id}

A policy for `{env_id}`, trained by [ppo_bench](#with-ppo_bench) for {steps:,} environment steps.

| | |
|---|---|
{table}

{pictures}
## With ppo_bench

`{folder}` stands for this folder, once it is downloaded.

```
{uses}
```

```python
import ppo_bench

policy = ppo_bench.load("{folder}")
actions = policy.act(observations)  # observations [N, ...] as the environments give them
```

`model.safetensors` holds parameters, Adam's moments and statistics under the names and in the layout that every
framework of ppo_bench loads; `config.json` holds the whole configuration, the versions and the machine.

## Train it again

{again}
"""
FOLDER = "DIR"


class Returns(NamedTuple):
    """Returns of episodes, and which episodes they are of."""

    values: Sequence[float]
    episodes: str

    @property
    def shown(self) -> str:
        """Mean and standard deviation."""
        return f"{statistics.fmean(self.values):.2f} ± {statistics.pstdev(self.values):.2f}"


def card(
    run: Mapping[str, Any],
    config: Config,
    loop: Mapping[str, Any],
    words: list[str] | None,
    returns: Returns | None,
    video: str | None,
) -> str:
    """The text of README.md.

    `run` is what the run recorded, `config` its configuration, `loop` the counters of its checkpoint, `words` train the
    same if there are such; `video` is the name of the file that shows it.
    """
    pictures = [f'<video src="{video}" controls autoplay loop muted></video>\n'] if video else []
    uses = [f"python -m ppo_bench.evaluate {FOLDER}    # play it, in any framework: framework=jax_xla video=true"]
    if words is not None:
        further = [word for word in words if not word.startswith("total_timesteps=")]
        further += [f"checkpoint.load={FOLDER}", f"total_timesteps={2 * loop['global_step']}"]
        uses.append(f"{command(further)}    # train it further")
    text = TEXT.format(
        env_id=config.task.id,
        steps=loop["global_step"],
        table="\n".join(f"| {name} | {value} |" for name, value in _facts(run, config, loop, returns)),
        pictures="\n".join(pictures),
        folder=FOLDER,
        uses="\n".join(uses),
        again=_again(run, words),
    )
    return f"---\n{OmegaConf.to_yaml(OmegaConf.create(metadata(config, returns)))}---\n\n{text}"


def metadata(config: Config, returns: Returns | None) -> dict[str, Any]:
    """The Hub's metadata."""
    env_id = config.task.id
    name = f"PPO on {env_id}"
    about: dict[str, Any] = {
        "library_name": "ppo_bench",
        "pipeline_tag": "reinforcement-learning",
        "tags": [env_id, "ppo", "reinforcement-learning", "deep-reinforcement-learning", config.framework.name],
    }
    if returns:
        reward = {"type": "mean_reward", "name": "mean_reward", "value": returns.shown.replace("±", "+/-")}
        task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
        result = {"task": task, "dataset": {"type": env_id, "name": env_id}, "metrics": [reward | {"verified": False}]}
        about["model-index"] = [{"name": name, "results": [result]}]
    return about


def command(words: Sequence[str]) -> str:
    """A command line that trains."""
    return shlex.join(["python", "-m", "ppo_bench", *words])


def _facts(
    run: Mapping[str, Any], config: Config, loop: Mapping[str, Any], returns: Returns | None
) -> list[tuple[str, str]]:
    hardware, versions = run["hardware"], run["versions"]
    facts = [("return", f"{returns.shown}, mean ± standard deviation of {returns.episodes}")] if returns else []
    commit = f", commit {run['git_commit'][:12].rstrip('+')}" if run.get("git_commit") else ""
    return [
        *facts,
        ("environment", f"`{config.task.id}` on {config.backend.name}, {config.ppo.num_envs} at a time"),
        ("seed", str(config.root.seed)),
        ("steps, episodes", f"{loop['global_step']:,}, {loop['episodes']:,}"),
        ("framework", f"{config.framework.name}, {config.root.precision}"),
        ("training", f"{loop['wall_seconds'] / 60:.1f} minutes"),
        ("machine", ", ".join(filter(None, (hardware["gpu"], hardware["cpu"], f"{hardware['cores']} cores")))),
        ("versions", f"ppo_bench {versions['ppo-bench']}{commit}, Python {versions['python']}"),
    ]


def _again(run: Mapping[str, Any], words: list[str] | None) -> str:
    if words is None:
        return "`config.json` holds the configuration. No command gives it with ppo_bench's own files alone."
    source = run["config"]["checkpoint"]
    loads = bool(source.get("load"))
    begin = ["checkpoint.load=RUN_DIR", *(["checkpoint.fine_tune=true"] if source.get("fine_tune") else [])]
    note = "It began with another run's checkpoint, for which `RUN_DIR` stands.\n\n" if loads else ""
    return f"{note}```\n{command([*words, *(begin if loads else [])])}\n```"
