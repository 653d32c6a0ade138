"""A page for each preset `experiment=cleanrl/...`: usage, learning curves, logged metrics and hyperparameters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from settings import explained, table

from ppo_bench.algorithms.ppo import metrics_of
from ppo_bench.common.paths import CONF, FRAMEWORKS
from ppo_bench.configuration.load import load_config
from ppo_bench.runs.trackers.charts import TAGS

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "results"
FOLDER = CONF / "experiment" / "cleanrl"
REPEATS = {"ppo_atari_envpool_xla_jax_scan": "ppo_atari_envpool_xla_jax"}
"""Presets of scripts that train what another's does, and the name of that one's preset."""
METRICS = {
    "episodic_return": "mean return of the episodes that ended in the iteration",
    "episodic_length": "mean length of those episodes, in steps",
    "sps": "environment steps per second of the iteration",
    "evaluation_return_greedy": "mean return by the likeliest actions (`evaluation.every_iterations`)",
    "evaluation_return_sampled": "mean return by sampled actions (`evaluation.every_iterations`)",
    "learning_rate": "Adam's learning rate",
    "policy_loss": "the clipped surrogate loss",
    "value_loss": "the critic's loss, half the mean squared error",
    "entropy": "mean entropy of the policy",
    "old_approx_kl": "mean of -log ratio, an estimate of the KL divergence from the old policy",
    "approx_kl": "mean of (ratio - 1) - log ratio, an estimate with less variance",
    "clip_fraction": "share of ratios that were clipped",
    "explained_variance": "1 less the share of the returns' variance that the critic leaves unexplained",
    "std": "standard deviation of a policy of continuous actions (the geometric mean over its components)",
    "gradient_norm": "global norm of the gradient before it is clipped",
    "masked_fraction": "share of steps that only reset an environment",
    "intrinsic_value_loss": "loss of the critic of intrinsic rewards",
    "forward_loss": "the predictor's error",
    "intrinsic_reward": "mean intrinsic reward, before it is normalised",
    "intrinsic_return": "mean intrinsic return",
}
"""Meaning of each column of metrics.jsonl, by its name."""
Settings = dict[str, Any]
"""A resolved configuration, as plain values."""


def preset_names() -> list[str]:
    """Names of the presets, in alphabetical order."""
    return [path.stem for path in sorted(FOLDER.glob("*.yaml"))]


def preset_pages() -> dict[str, str]:
    """The Markdown of every preset page and of their index, by file name."""
    names = preset_names()
    pages = {f"presets/{name}.md": _page(name) for name in names}
    return {"presets/index.md": _index(names)} | pages


def _keys(path: Path) -> Settings:
    """The keys and values of a YAML file."""
    found: Any = OmegaConf.to_container(OmegaConf.load(path))
    return dict(found)


def _about(name: str) -> str:
    """The comments of the preset's YAML file, as one line of Markdown."""
    lines = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    comments = [line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @package")]
    return re.sub(r"docs/(\w+)\.md", r"[\1](../\1.md)", " ".join(comments))


def _index(names: Iterable[str]) -> str:
    lines = [
        "# Presets",
        "",
        "Each preset is a file under `conf/experiment/cleanrl/` with the hyperparameters, the network and the switches "
        "of one of [CleanRL](https://docs.cleanrl.dev/rl-algorithms/ppo/)'s scripts. A preset runs in every framework, "
        "and any of its keys can be changed on the command line. What differs from the scripts is on "
        "[a page of its own](../cleanrl.md).",
        "",
        "| preset | environment | steps | what it is |",
        "|---|---|---|---|",
    ]
    for name in names:
        config = load_config([f"experiment=cleanrl/{name}"])
        steps = f"{config.resolved['total_timesteps']:,}"
        lines.append(
            f"| [`cleanrl/{name}`]({name}.md) | {config.task.id.rpartition(':')[2]} | {steps} | {_about(name)} |"
        )
    return "\n".join(lines) + "\n"


def _page(name: str) -> str:
    config = load_config([f"experiment=cleanrl/{name}"])
    settings = config.resolved
    parts = [
        f"# cleanrl/{name}",
        _about(name),
        f"The file is `conf/experiment/cleanrl/{name}.yaml`. The environment is {config.task.id.rpartition(':')[2]} on "
        f"{settings['backend']['name']}, for {settings['total_timesteps']:,} steps.",
        "## Usage",
        _usage(name, settings),
        "## Learning curves",
        _results(name),
        "## What is logged",
        _logged(config),
        "## Hyperparameters",
        _hyperparameters(name, settings),
    ]
    return "\n\n".join(parts) + "\n"


def _usage(name: str, settings: Settings) -> str:
    preset = f"experiment=cleanrl/{name}"
    lines = [f"ppo-bench {preset}"]
    if not name.startswith("ppo_trxl"):
        lines += [f"ppo-bench {preset} env={env}" for env in _envs(name) if env != settings["env"]["name"]][:2]
    if settings["backend"]["name"] != "device":
        others = [framework for framework in FRAMEWORKS if framework != settings["framework"]["name"]]
        lines += [f"ppo-bench {preset} framework={framework}" for framework in others]
    campaigns = _campaigns(name)
    text = "\n".join([*lines, f"ppo-bench sweep {preset} 'seed=range(1,4)'"])
    block = f"```bash\n{text}\n```"
    if not campaigns:
        return block
    sweeps = "\n".join(f"ppo-bench sweep experiment=campaign/{campaign}" for campaign in campaigns)
    return f"{block}\n\nThe published table, every environment and seed of it:\n\n```bash\n{sweeps}\n```"


def _campaigns(name: str) -> list[str]:
    """Names of the campaigns that reproduce the published table of preset `name`."""
    found, base = [], f"/experiment/cleanrl/{REPEATS.get(name, name)}"
    for path in sorted((CONF / "experiment" / "campaign").glob("*.yaml")):
        if base in _keys(path).get("defaults", []):
            found.append(path.stem)
    return found


def _envs(name: str) -> list[str]:
    """Names of the environments in the campaigns of preset `name`."""
    found: list[str] = []
    for campaign in _campaigns(name):
        file = _keys(CONF / "experiment" / "campaign" / f"{campaign}.yaml")
        found += str(file["hydra"]["sweeper"]["params"]["env"]).split(",")
    return found


def _results(name: str) -> str:
    """Learning curves of the preset's campaigns, and where they are compared with the published table."""
    pictures = [
        f"![{picture.stem}: return by steps and by time](../results/{picture.name})"
        for campaign in _campaigns(name)
        for picture in sorted(RESULTS.glob(f"{campaign}-*.svg"))
    ]
    return "\n\n".join(["[Returns](../results.md) are compared with the published ones, with a verdict.", *pictures])


# --- What is logged, hyperparameters -------------------------------------------------------------------------


def _logged(config: Any) -> str:
    declared = {metric.name: metric.tag for metric in metrics_of(config.algorithm)}
    lines = ["| column of `metrics.jsonl` | tag in TensorBoard and wandb | what it is |", "|---|---|---|"]
    lines += [f"| `{name}` | `{tag}` | {METRICS[name]} |" for name, tag in (TAGS | declared).items()]
    episodes = "Each finished episode is a row of `episodes.jsonl`: `global_step, env, return, length`."
    means = (
        "Losses are means over all minibatches of an iteration. The tags are CleanRL's. So are `charts/SPS` (the mean "
        "since the start) and `charts/avg_episodic_return` (of the last 20 episodes), which trackers compute."
    )
    return "\n".join(lines) + f"\n\n{means} {episodes}"


def _hyperparameters(name: str, settings: Settings) -> str:
    """A table of every key of the algorithm and the network with the preset's value and the key's meaning."""
    base = [d for d in _keys(FOLDER / f"{name}.yaml")["defaults"] if isinstance(d, str) and d.startswith("/experiment")]
    also = f"It builds on [`{base[0].rpartition('/')[2]}`]({base[0].rpartition('/')[2]}.md). " if base else ""
    rows = []
    for group, choice in (("ppo", "classic"), *((group, _choice(name, group)) for group in ("network", "algorithm"))):
        for row in explained(CONF / group / f"{choice}.yaml", f"{group}.").rows:
            given = {key: settings[group].get(key.partition(".")[2]) for key in row.keys}
            values = [value if isinstance(value, str) else json.dumps(value) for value in given.values()]
            rows.append(row._replace(values=values))
    return f"{also}What differs from the script is in [From CleanRL](../cleanrl.md).\n\n{table(rows, 'value')}"


def _choice(name: str, group: str) -> str:
    """The choice of a group that the preset's file makes, or the one that it builds on."""
    chosen = {"network": "auto", "algorithm": "ppo"}[group]
    for entry in _keys(FOLDER / f"{name}.yaml")["defaults"]:
        if isinstance(entry, str) and entry.startswith("/experiment"):
            chosen = _choice(entry.rpartition("/")[2], group)
        elif isinstance(entry, dict):
            chosen = next((value for key, value in entry.items() if key.endswith(f"/{group}")), chosen)
    return str(chosen)
