"""Ablation: the gain of each optimisation, on a ladder of variants from the plainest execution to the fastest.

Each rung of a ladder adds one optimisation to all those below it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppo_bench.commands.bench.figures import save
from ppo_bench.commands.bench.laps import Laps
from ppo_bench.commands.bench.programs import load, network_of, schema
from ppo_bench.commands.bench.report import about, bench_file
from ppo_bench.commands.bench.worker import in_turn
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import write_json
from ppo_bench.common.progress import say
from ppo_bench.configuration.config import Config
from ppo_bench.networks.network import NetworkSpec
from ppo_bench.sweeps.expand import expand

BOOTSTRAP_DRAWS = 2_000


class Rung(NamedTuple):
    """A rung of a ladder: an optimisation, and the overrides that switch it on."""

    title: str
    words: tuple[str, ...]
    """Overrides of this rung. The rungs above keep them, except for keys that they override themselves."""
    needs: str | None = None
    """The element of `circumstances` without which the rung is left out; None for rungs that always apply."""


TORCH = (
    Rung("PyTorch, operation by operation", ("framework=torch_eager", "tuning=off")),
    Rung("freed memory is kept", ("tuning.keep_freed_memory=true",), "cpu"),
    Rung("idle threads sleep", ("tuning.sleep_idle_threads=true",), "cpu"),
    Rung("EnvPool's thread follows its caller", ("tuning.follow_caller=true",), "envpool"),
    Rung("torch.compile", ("framework=torch_compile", "framework.cudagraphs=false")),
    Rung("CUDA graphs", ("framework.cudagraphs=true",), "gpu"),
    Rung("TF32", ("precision=tf32",), "tf32"),
    Rung("bfloat16", ("precision=bfloat16",), "bfloat16"),
)
JAX = (
    Rung("JAX, environments on the host", ("framework=jax_xla", "tuning=off")),
    Rung("EnvPool's thread follows its caller", ("tuning.follow_caller=true",), "envpool"),
    Rung("convolutions as matrix products", ("tuning.convolve_by_products=true",), "cpu convolutions"),
    Rung("environments in the program", ("backend=GRAPH",), "graph"),
    Rung("ten iterations at once", ("framework.iterations_per_call=10",), "graph"),
    Rung("TF32", ("precision=tf32",), "tf32"),
    Rung("bfloat16", ("precision=bfloat16",), "gpu"),
)
LADDERS = {"PyTorch": TORCH, "JAX": JAX}
BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instructions for products of bfloat16, of x86 and of ARM."""
GRAPH_BACKENDS = ("jax", "envpool_xla")
"""Backends for environments inside a JAX program; a ladder takes the first one that offers the environment."""


def circumstances(
    network: NetworkSpec,
    backend: str,
    gpu: tuple[int, int] | None,
    graph_backend: str | None,
    instructions: Mapping[str, Any],
) -> set[str]:
    """The set of conditions that hold, for `Rung.needs`.

    `gpu` is the GPU's compute capability, None without a GPU. `graph_backend` is one of `GRAPH_BACKENDS` or None.
    `instructions` says what the CPU can do, as `torch.cpu.get_capabilities` does.
    """
    found = {"gpu" if gpu else "cpu", backend}
    if gpu and gpu >= (8, 0):
        found.add("tf32")
    if network.convolves and not gpu:
        found.add("cpu convolutions")
    # On a CPU linear layers alone are too small to pay for the conversions, and XLA has no such convolutions.
    if gpu or (network.convolves and any(instructions.get(name) for name in BFLOAT16_INSTRUCTIONS)):
        found.add("bfloat16")
    if graph_backend:
        found.add("graph")
    return found


class LadderStep(NamedTuple):
    """A rung to be measured."""

    title: str
    words: list[str]
    """Overrides of the rung and of those below it."""


def steps(ladder: Sequence[Rung], there: set[str], graph_backend: str | None) -> list[LadderStep]:
    """The rungs of a ladder that apply, from the lowest; `there` is the result of `circumstances`."""
    climbed: list[LadderStep] = []
    words: dict[str, str] = {}
    for rung in ladder:
        if rung.needs is None or rung.needs in there:
            words |= {word.partition("=")[0]: word.replace("GRAPH", str(graph_backend)) for word in rung.words}
            climbed.append(LadderStep(rung.title, list(words.values())))
    return climbed


class Climb(NamedTuple):
    """A ladder to be measured."""

    job: list[str]
    """The user's overrides, without the framework."""
    steps: list[LadderStep]
    configs: list[Config]
    """The configuration of each step."""


def ablation(overrides: list[str]) -> None:
    """Measure, print and draw the ladders of each environment and workload.

    The JSON file is updated after each ladder.
    """
    groups: dict[Path, dict[str, Climb]] = {}
    for job in expand(overrides):
        config = load(job)
        ladders = groups.setdefault(bench_file(config, "ablation", ".json"), {})
        for title, climb in climbs(job, config):
            if ladders.setdefault(title, climb).job != climb.job:
                raise ConfigError("ablation=true: only lists of framework, backend and workload can be told apart")
        if not ladders:
            raise ConfigError(f"no ladder of {' or '.join(LADDERS)} can be measured: what was left out stands above")
    for path, ladders in groups.items():
        rows: dict[str, list[dict[str, Any]]] = {}
        first = next(iter(ladders.values())).configs[0]
        heading = f"{first.task.name}, {schema(first).workload}"
        for title, climb in ladders.items():
            rows[title] = _measured(climb)
            write_json(path, about([one for own in ladders.values() for one in own.configs]) | {"ladders": rows})
            print_ladder(f"{heading}, {title}", rows[title])
        draw_ladders(heading, rows, path)
        print(path)


def climbs(job: list[str], config: Config) -> Iterator[tuple[str, Climb]]:
    """Title and ladder for each framework family that `job` asks for. Raises `ConfigError` if one cannot run."""
    import torch

    root, backend = schema(config), config.backend
    if backend.in_graph:
        raise ConfigError(
            f"ablation=true backend={backend.name}: a ladder begins with environments on the host; "
            "use backend=gymnasium or backend=envpool"
        )
    asked = next((word.partition("=")[2] for word in job if word.startswith("framework=")), None)
    graph = None if root.env.id else next((name for name in GRAPH_BACKENDS if name in root.env.ids), None)
    backend.require()
    there = circumstances(network_of(config), backend.name, _gpu(config), graph, torch.cpu.get_capabilities())
    kept = [word for word in job if not word.startswith("framework=")]
    sizes = [f"ppo.num_envs={config.ppo.num_envs}", "checkpoint.every_iterations=10"]
    for name, ladder in LADDERS.items():
        if asked and not asked.startswith(name.lower().removeprefix("py")):
            continue
        climbed = steps(ladder, there, graph)
        configs = [load([*kept, *sizes, *step.words]) for step in climbed]
        try:
            for one in configs:
                one.require()
        except ConfigError as reason:
            if asked:
                raise
            say(f"left out: {reason}")
            continue
        yield f"{name}, {backend.name}", Climb(kept, climbed, configs)


def _gpu(config: Config) -> tuple[int, int] | None:
    import torch

    device = config.root.device
    on_gpu = torch.cuda.is_available() and device != "cpu"
    return torch.cuda.get_device_capability(None if device == "auto" else device) if on_gpu else None


def _measured(climb: Climb) -> list[dict[str, Any]]:
    """A row for each step of a ladder; the steps are measured in alternation."""
    root = schema(climb.configs[0])
    measured = in_turn([(Laps, config) for config in climb.configs], root.rounds, root.iterations)
    seconds = np.array([np.reshape(found.turns, (root.rounds, root.iterations)) for found in measured])
    return [
        {
            "title": step.title,
            "words": step.words,
            "sps": config.ppo.batch_size / float(np.median(found.turns)),
            "iteration_seconds": found.turns,
            **row,
            **found.start._asdict(),
        }
        for step, config, found, row in zip(
            climb.steps, climb.configs, measured, shares(np.median(seconds, 2)), strict=True
        )
    ]


def shares(seconds: np.ndarray) -> list[dict[str, Any]]:
    """A dictionary for each step with its speed-up, from the seconds per iteration `seconds [steps, rounds]`.

    `times_previous` is the median over rounds of the speed-up over the step below, `low` and `high` are its 95%
    interval by bootstrap over rounds. `times_first` is the speed-up over the lowest step. `share` is the logarithm of
    `times_previous` as a fraction of the logarithm of the whole ladder's speed-up.
    """
    rng = np.random.default_rng(0)
    rounds = seconds.shape[1]
    draws = rng.integers(rounds, size=(BOOTSTRAP_DRAWS, rounds))
    whole = np.log(np.median(seconds[0] / seconds[-1]))
    rows: list[dict[str, Any]] = [
        {"times_previous": None, "low": None, "high": None, "times_first": 1.0, "share": None}
    ]
    for below, own in itertools.pairwise(seconds):
        ratios = below / own
        low, high = np.quantile(np.median(ratios[draws], 1), (0.025, 0.975))
        times = float(np.median(ratios))
        rows.append(
            {
                "times_previous": times,
                "low": float(low),
                "high": float(high),
                "times_first": float(np.median(seconds[0] / own)),
                "share": float(np.log(times) / whole) if whole else None,
            }
        )
    return rows


def print_ladder(title: str, rows: Sequence[dict[str, Any]]) -> None:
    """Print a ladder, with a line for each step."""
    print(f"{title}: each step includes those above it; times: speed-up over the step above, 95% interval over rounds")
    width = max(len(row["title"]) for row in rows) + 2
    print(f"{'':<{width}}{'SPS':>9}{'times':>8}{'interval':>15}{'in all':>8}{'share':>7}")
    for row in rows:
        line = f"{row['title']:<{width}}{row['sps']:>9,.0f}"
        if row["times_previous"] is not None:
            line += f"{row['times_previous']:>8.2f}{row['low']:>8.2f} -{row['high']:>5.2f}{row['times_first']:>8.2f}"
            line += "" if row["share"] is None else f"{row['share']:>7.0%}"
        print(line)


def draw_ladders(title: str, ladders: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Write a figure of all ladders as SVG and PNG beside the JSON file at `path`."""
    from matplotlib.figure import Figure

    heights = [len(rows) for rows in ladders.values()]
    figure = Figure(figsize=(9, 1.6 + 0.42 * sum(heights)), layout="constrained")
    axes = figure.subplots(len(ladders), height_ratios=heights, squeeze=False)
    for ax, (name, rows) in zip(axes[:, 0], ladders.items(), strict=True):
        titles = [("" if k == 0 else "+ ") + row["title"] for k, row in enumerate(rows)]
        ax.barh(titles, [row["sps"] for row in rows], color="#0072B2")
        for k, row in enumerate(rows):
            times = row["times_previous"]
            note = "" if times is None else f"  x {times:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
            ax.annotate(f" {row['sps']:,.0f} SPS{note}", (row["sps"], k), va="center", fontsize=9)
        ax.invert_yaxis()
        ax.margins(x=0.35)
        ax.set_title(name, loc="left", fontsize=10)
        ax.spines[["top", "right"]].set_visible(False)
    axes[-1, 0].set_xlabel("environment steps per second")
    figure.suptitle(f"{title}: what each optimisation brings")
    save(figure, path)
