"""Options of EnvPool's pools: what follows from the task, and what `env.kwargs` may add."""

from __future__ import annotations

from typing import Any

from ppo_bench.common.errors import ConfigError, nearest, one_line
from ppo_bench.envs.base import Task

RESERVED_OPTIONS = {
    *("num_envs", "num_threads", "batch_size", "seed", "env_seed", "max_num_players", "gym_reset_return_info"),
    *("task", "task_name", "env_name"),
}
"""Options of a pool that follow from the task, such as its id, and that `env.kwargs` must not have."""
ATARI_TASK_OPTIONS = {
    *("frame_skip", "stack_num", "noop_max", "max_episode_steps", "repeat_action_probability", "full_action_space"),
    *("use_fire_reset", "zero_discount_on_life_loss", "img_height", "img_width", "gray_scale", "use_inter_area_resize"),
}
"""Options of Atari games that are part of the task; another value would not be the task on gymnasium."""

CONTACT_FORCE_IDS = ("Humanoid-v4", "HumanoidStandup-v4")
"""Ids whose observations have contact forces, which are all 0 on EnvPool by default, and not on gymnasium."""


def validate_options(envpool: Any, task: Task) -> dict[str, Any]:
    """The options of a pool for `task`, but for sizes and seeds. Raises `ConfigError` if the task has a wrong one."""
    known, options = _known(envpool, task), dict[str, Any]()
    if task.atari:
        if "episodic_life" not in known:
            raise ConfigError(f"{task.id} is not an Atari game: add env.atari=null")
        # EnvPool's defaults for all other options are the task on gymnasium.
        options = {
            "episodic_life": task.atari.episodic_life,
            "reward_clip": task.atari.reward_clip,
            "stack_num": task.atari.frames,
            "repeat_action_probability": task.atari.repeat_action_probability,
        }
    if unknown := set(task.kwargs) - known:
        raise ConfigError(f"env.kwargs: {task.id} takes no {', '.join(sorted(unknown))} on backend=envpool")
    if conflicts := set(task.kwargs) & set(options):
        raise ConfigError(f"env.kwargs: {', '.join(sorted(conflicts))} is set by env.atari: change it there")
    if task.atari and (fixed := set(task.kwargs) & ATARI_TASK_OPTIONS):
        raise ConfigError(f"env.kwargs: {', '.join(sorted(fixed))} is part of the Atari task and cannot be changed")
    if task.id in CONTACT_FORCE_IDS:
        options["post_constraint"] = True
    return options | dict(task.kwargs)


def import_envpool() -> Any:
    """The module `envpool`. Importing it reads the folder of its ROMs; raises `ConfigError` if that is missing."""
    try:
        import envpool
    except (ImportError, OSError) as error:
        said = one_line(error)
        raise ConfigError(
            f"EnvPool and its ROMs cannot be loaded ({said}): pip install --force-reinstall envpool envpool-assets"
        ) from error
    return envpool


def _known(envpool: Any, task: Task) -> set[str]:
    """Names of EnvPool's options for the environment of `task`, without `RESERVED_OPTIONS`.

    Raises `ConfigError` if EnvPool lacks the environment, or its ROM or Qt is missing.
    """
    known = envpool.list_all_envs()
    if task.id not in known and task.atari:  # EnvPool lists only games whose ROMs it finds
        ending = "-v5" if task.id.endswith("-v5") else ""  # as env.game=... is written, or as env.id=...
        game, games = task.id.removesuffix(ending), (name.removesuffix(ending) for name in _ids_with_roms())
        close = nearest(game, games)
        hint = f"did you mean {', '.join(close)}? If not, its" if close else "if that is its name, its"
        raise ConfigError(
            f"EnvPool has no Atari game {game!r}; {hint} ROM is missing: pip install --force-reinstall envpool-assets"
        )
    if task.id not in known:
        close = nearest(task.id, known)
        hint = f"did you mean {', '.join(close)}?" if close else "envpool.list_all_envs() lists them"
        raise ConfigError(f"EnvPool has no environment {task.id!r}; {hint}")
    try:
        return _options(envpool, task.id)
    except RuntimeError:  # of a missing file: VizdoomCustom-v1 has none but those that its arguments name
        try:
            return _options(envpool, task.id, **task.kwargs)
        except (RuntimeError, TypeError) as error:
            needs = "" if task.kwargs else "; env.kwargs={cfg_path:...,wad_path:...} are its files"
            raise ConfigError(f"EnvPool cannot make {task.id!r}: {one_line(error)}{needs}") from error
    except ImportError as error:
        if "Qt" not in str(error):
            raise ConfigError(f"EnvPool cannot make {task.id!r}: {one_line(error)}") from error
        raise ConfigError(
            f"{task.id} on EnvPool needs Qt 5 of the system (libqt5core5a and libqt5gui5 on Debian): make setup-procgen"
        ) from error


def _options(envpool: Any, env_id: str, **arguments: Any) -> set[str]:
    return set(envpool.make_spec(env_id, **arguments).config._fields) - RESERVED_OPTIONS  # once: 0.1 s


def _ids_with_roms() -> list[str]:
    """Ids of the Atari games whose ROMs are installed."""
    from envpool.registration import registry

    return [env_id for env_id, (module, *_) in registry.specs.items() if module == "envpool.atari"]
