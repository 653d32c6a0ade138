"""The text of `python -m ppo_bench --help`, read from the YAML files without importing Hydra or a framework."""

from __future__ import annotations

from pathlib import Path

from ppo_bench.common.paths import CONF

GROUPS = (
    "framework",
    "env",
    "backend",
    "network",
    "algorithm",
    "ppo",
    "tuning",
    "experiment",
    "tracker",
    "hydra/launcher",
    "launch",
)

USAGE = """\
Train PPO, the same PPO in every framework, and record how fast it was.

  python -m ppo_bench [group=choice ...] [key=value ...]          one run; prints its folder
  python -m ppo_bench -m 'seed=range(1,6)' framework=a,b ...      a sweep: one process a run, in turn
                         ... hydra/launcher=joblib                the same, several runs at a time; also submitit_local
                         ... hydra/sweeper=optuna                 values chosen by Optuna: ppo.gamma=interval(0.9,1)
  python launch/slurm.py [--dry-run] 'seed=range(1,6)' ...        a sweep on SLURM; launch= chooses the resources
                         ... launch.nodes=2 devices=2 ppo.shards=2 each run on two nodes
  python -m ppo_bench --cfg job [...]                             print the whole configuration
  python -m ppo_bench --config-dir DIR [...]                      your own YAML files, in a folder laid out like conf/
  python -m ppo_bench.evaluate RUN_DIR... [video=true] [...]      newest checkpoints of runs, in any framework
  python -m ppo_bench.report outputs [--out DIR]                  which is faster, and do they learn the same?
  python -m ppo_bench.bench [env=... workload=...]                where the time goes, against the machine's limits
  python -m ppo_bench.query "select * from runs" outputs          SQL over runs, metrics, episodes
  python -m ppo_bench.watch DIR                                   state and progress of the runs under a folder
  python -m ppo_bench.check env=... backend=...                   does an environment keep the contract?
  python -m ppo_bench.equivalence env=... [mode=lockstep|free]    do the frameworks do the same?

The same command run again resumes an unfinished run and reports a finished one."""

EXAMPLES = """\
Common overrides (conf/ explains every key)
  total_timesteps=100_000   number of environment steps of the run
  seed=1                    determines all random numbers
  num_seeds=16              number of seeds that one program trains, a run each (framework=jax_xla backend=jax)
  'grid={ppo.learning_rate:[1e-3,2.5e-4]}'   hyperparameters of which that program trains several values
  precision=float64         arithmetic: float32, tf32, bfloat16 or float64
  device=cuda:0             auto, cpu, cuda, cuda:<i>
  devices=2 ppo.shards=2    number of devices that share the environments of one training
  ppo.num_envs=16           any key of the chosen ppo: learning_rate, num_steps, clip_coef, ...
  env.id=Pendulum-v1        any id that the chosen backend knows
  outputs=/data/runs        the folder under which everything is written
  checkpoint.load=RUN_DIR   start from a checkpoint of another run, of any framework
  tracker=[tensorboard,wandb]   log the run there too; options are keys such as tracker.wandb.project
  video.every_episodes=100  record a video of an episode after every 100, at checkpoints, in the run's evaluations/
  rerun=true                train again from the start, in a new folder beside the run's

Exit codes: 0 done, 1 failed while running, 2 wrong configuration, 75 another machine was lost, 130 interrupted."""


def help_text() -> str:
    """The help text: usage, the choices of every group with the first comment of each, and common overrides."""
    groups = [_group(CONF / group) for group in GROUPS]
    return "\n\n".join([USAGE, *groups, EXAMPLES])


def _group(folder: Path) -> str:
    files = sorted(folder.rglob("*.yaml"))
    choices = {path.relative_to(folder).with_suffix("").as_posix(): _first_comment(path) for path in files}
    width = max(len(choice) for choice in choices)
    return "\n".join(
        [
            folder.relative_to(CONF).as_posix(),
            *(f"  {choice:<{width}}  {comment}" for choice, comment in choices.items()),
        ]
    )


def _first_comment(path: Path) -> str:
    lines = path.read_text().splitlines()
    return next(line[2:] for line in lines if line.startswith("# ") and not line.startswith("# @package"))
