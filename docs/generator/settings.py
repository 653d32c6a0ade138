"""The reference pages of configuration keys and of environment files, generated from the comments in conf/.

A comment belongs to the key below it, and to the keys that follow without a comment or an empty line in between.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from ppo_bench.common.paths import CONF

BACKENDS = ("gymnasium", "envpool", "device", "pettingzoo")
GROUPS = {
    "framework": "The framework that executes PPO.",
    "backend": "The library that provides the environments and steps them.",
    "algorithm": "The algorithm that learns from each rollout.",
    "network": "The policy and the critic.",
    "tuning": "Optimisations for CPUs, each of which can be switched off.",
    "tracker": "Trackers to which a run is logged.",
    "launch": "The resources of a job that `launch/slurm.py` submits.",
}
"""Description of each configuration group whose choices are all listed with their keys."""
ROOTS = {
    "evaluate": "`ppo-bench evaluate RUN_DIR... [key=value ...]`",
    "bench": "`ppo-bench bench [key=value ...]`",
    "against": "`ppo-bench equivalence against=SCRIPT.py [key=value ...]`",
}
HIDDEN = ("_target_", "name", "defaults", "hydra")
HIDDEN_PART = "..."
OVERRIDE = re.compile(r"(?<![\w`])([a-z_]+(?:\.\w+)*=(?:\{[^}]*\}|\[[^\]]*\]|[\w./-]*\w))")
KEY = re.compile(r"( *)([\w.]+):(?: +(.*?))?(?: +# .*)?$")


class Row(NamedTuple):
    """Keys that share one comment (`meaning`), with their values in the file."""

    keys: list[str]
    values: list[str]
    meaning: str


class Explained(NamedTuple):
    """The comments of a YAML file: `about` is that at its top, `rows` those of its keys."""

    about: str
    rows: list[Row]


def explained(path: Path, prefix: str = "", hidden: tuple[str, ...] = HIDDEN) -> Explained:
    """The comments of the YAML file `path`; `prefix` is prepended to each key, and keys in `hidden` are left out."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("# @package")]
    begin = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
    rows: list[Row] = []
    comment: list[str] = []
    parents: list[tuple[int, str]] = []
    shared = False  # whether `comment` already belongs to a key
    for line in lines[begin:]:
        if line.lstrip().startswith("#"):
            comment = [*([] if shared else comment), line.lstrip("# ")]
            shared = False
            continue
        found = KEY.match(line)
        if not line.strip() or (found and not found[1] and found[2] in hidden):
            parents, comment = (parents, []) if not line.strip() else ([(0, HIDDEN_PART)], [])
            continue
        if not found:  # an item of a list
            continue
        depth, key, value = len(found[1]), found[2], found[3]
        parents = [parent for parent in parents if parent[0] < depth]
        if (0, HIDDEN_PART) in parents:
            continue
        name = prefix + ".".join(part for _, part in [*parents, (depth, key)])
        if value is None:
            parents.append((depth, key))
        if comment and shared:
            rows[-1].keys.append(name)
            rows[-1].values.append(value or "")
        elif comment or value is not None:
            rows.append(Row([name], [value or ""], " ".join(comment)))
            shared = value is not None
        comment = comment if value is not None else []
    return Explained(" ".join(line.lstrip("# ") for line in lines[:begin]), rows)


def table(rows: list[Row], values_are: str = "default") -> str:
    """A Markdown table of keys, their values and meanings."""
    lines = [f"| key | {values_are} | meaning |", "|---|---|---|"]
    for row in rows:
        keys = "<br>".join(f"`{key}`" for key in row.keys)
        values = "<br>".join("*must be given*" if v == "???" else f"`{v}`" if v else "" for v in row.values)
        meaning = OVERRIDE.sub(r"`\1`", _escaped(row.meaning))
        lines.append(f"| {keys} | {values} | {meaning} |")
    return "\n".join(lines)


def _sentence(about: str) -> str:
    """The top comment `about` of a root configuration, without the name of its command."""
    text = re.sub(r"^python -m ppo_bench\.\w+: ", "", about)
    return text[:1].upper() + text[1:]


def _escaped(text: str) -> str:
    text = re.sub(r"(?<!\S)(_\w+_)(?!\S)", r"`\1`", text)
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def configuration_page() -> str:
    """The reference of all configuration keys, in Markdown."""
    parts = [
        "# Configuration",
        "Each key, its default and its meaning, from the comments of the YAML files in `conf/`. A key is changed on "
        "the command line, as in `ppo-bench env=hopper ppo.num_envs=4 seed=2`. `ppo-bench --cfg job env=hopper` prints "
        "the whole configuration of a command; a key that does not exist and a value of the wrong type end with one "
        "line and exit code 2. The environments' own files are [a page of their own](environment-files.md).",
        "## Keys of a run",
    ]
    found = explained(CONF / "config.yaml", hidden=("defaults", "hydra"))
    plain = [row for row in found.rows if "." not in row.keys[0]]
    parts.append(table(plain))
    for section in ("env", "checkpoint", "evaluation", "video"):
        parts += [f"### {section}", table([row for row in found.rows if row.keys[0].startswith(f"{section}.")])]
    parts += ["## ppo", "PPO's hyperparameters, by CleanRL's names. " + _choices("ppo")]
    parts.append(table(explained(CONF / "ppo" / "classic.yaml", "ppo.").rows))
    for path in sorted((CONF / "ppo").glob("*.yaml")):
        if path.stem != "classic":
            own = explained(path, "ppo.")
            parts += [f"### ppo={path.stem}", f"{own.about} It differs from `classic` in:", table(own.rows)]
    for group, about in GROUPS.items():
        parts += [f"## {group}", about]
        for path in sorted((CONF / group).glob("*.yaml")):
            own = explained(path, f"{group}.{path.stem}." if group == "tracker" else f"{group}.")
            parts += [f"### {group}={path.stem}", _escaped(own.about), *([table(own.rows)] if own.rows else [])]
    parts += ["## experiment", _experiments()]
    for root, command in ROOTS.items():
        own = explained(CONF / f"{root}.yaml")
        parts += [f"## Keys of {root}", f"{command}. {_escaped(_sentence(own.about))}", table(own.rows)]
    return "\n\n".join(parts) + "\n"


def _choices(group: str) -> str:
    names = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
    return f"The choices are {', '.join(f'`{name}`' for name in names)}; an environment's file names its own."


def _experiments() -> str:
    lines = ["| `experiment=` | what it is |", "|---|---|"]
    for path in sorted((CONF / "experiment").rglob("*.yaml")):
        name = path.relative_to(CONF / "experiment").with_suffix("").as_posix()
        shown = f"[`{name}`](presets/{path.stem}.md)" if name.startswith("cleanrl/") else f"`{name}`"
        lines.append(f"| {shown} | {_escaped(explained(path).about)} |")
    return "\n".join(lines)


def env_ids() -> list[tuple[str, str, str]]:
    """Each environment's id on each backend that its file in conf/env lists: the names of env and backend, the id."""
    files = {path.stem: _load_env_file(path.stem) for path in sorted((CONF / "env").glob("*.yaml"))}
    return [(env, backend, env_id) for env, file in files.items() for backend, env_id in file.env.ids.items()]


def _load_env_file(name: str) -> Any:
    """A file under conf/env merged with the files that it builds on."""
    file: Any = OmegaConf.load(CONF / "env" / f"{name}.yaml")
    bases = [_load_env_file(base) for base in file.get("defaults", []) if isinstance(base, str) and base != "_self_"]
    return OmegaConf.merge(*bases, file)


def environments_page() -> str:
    """The table of all files of the group `env`, with their ids on each backend, in Markdown."""
    ids: dict[str, dict[str, str]] = {}
    for env, backend, env_id in env_ids():
        ids.setdefault(env, {})[backend] = env_id
    lines = [
        "# Environment files",
        "",
        "Each `env=` that has a file in `conf/env/`, and its id on each backend that offers it. Any other id that a "
        "backend knows is named by `env.id=`, as in `ppo-bench env.id=LunarLander-v3 backend=envpool`; see "
        "[environments](environments.md).",
        "",
        f"| `env=` | what it is | {' | '.join(BACKENDS)} |",
        "|---|---|" + "---|" * len(BACKENDS),
    ]
    for path in sorted((CONF / "env").glob("*.yaml")):
        about = _escaped(explained(path).about)
        cells = [f"`{ids[path.stem][b]}`" if b in ids.get(path.stem, {}) else "" for b in BACKENDS]
        lines.append(f"| `{path.stem}` | {about} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
