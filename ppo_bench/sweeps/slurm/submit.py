"""`python launch/slurm.py [--dry-run] [overrides]`: submit a sweep to SLURM and return.

Runs that are complete, queued or running are skipped, so that the same command again submits those that failed or are
missing. `launch=<name>` chooses the resources from conf/launch/, `launch.<key>=<value>` changes one.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import NamedTuple

from ppo_bench.common.cli import Parser, parse_overrides
from ppo_bench.common.columns import aligned
from ppo_bench.common.errors import ConfigError
from ppo_bench.common.files import are_complete, first_unfinished, is_complete
from ppo_bench.common.progress import print_status
from ppo_bench.configuration.compose import refuse_of_hydra, search_path
from ppo_bench.configuration.load import load_config
from ppo_bench.sweeps.expand import check_environments, sweep_jobs
from ppo_bench.sweeps.slurm.commands import refusal, require_slurm
from ppo_bench.sweeps.slurm.ledger import job_of_run, jobs_folder, one_at_a_time, record
from ppo_bench.sweeps.slurm.resources import Launch, load_launch, split, tasks_per_node
from ppo_bench.sweeps.slurm.status import statuses


class SubmittedRun(NamedTuple):
    """A training: the folders of its runs, one unless a program trains several, and the command's overrides."""

    folders: list[str]
    overrides: list[str]


def main(arguments: list[str]) -> int:
    """Check every run, submit those that are needed, and print the state of each."""
    parser = Parser("python launch/slurm.py", description=__doc__)
    parser.add_overrides("as for a sweep by python -m ppo_bench -m, and launch.<key>=")
    parser.add_argument("--dry-run", action="store_true", help="print what would be submitted, and submit nothing")
    options = parser.parse_intermixed_args(arguments)
    of_launch, of_runs = split(parse_overrides(options))
    launch = load_launch([*search_path(of_runs), *of_launch])
    outputs, runs, tasks = _runs(of_runs, launch)
    if options.dry_run:
        needed, rows = _choose(outputs, runs)
        print(aligned(rows))
        print_status(f"{len(needed)} of {len(runs)} runs would be submitted, {_resources(launch, tasks, len(needed))}")
        return 0
    require_slurm()
    with one_at_a_time(outputs):
        needed, rows = _choose(outputs, runs)
        jobs = _submit(outputs, needed, launch, tasks) if needed else []
    print(aligned(rows))
    how = f" as {jobs[0].partition('_')[0]}, {_resources(launch, tasks, len(needed))}" if jobs else ""
    print_status(f"{len(needed)} of {len(runs)} runs submitted{how}; --dry-run shows their state")
    return 0


def _runs(overrides: Sequence[str], launch: Launch) -> tuple[Path, list[SubmittedRun], int]:
    """The outputs folder, every run of the sweep once, and the number of tasks of a job on each node."""
    refuse_of_hydra(overrides, "for sweeps by -m; resources of jobs are launch=...")
    configs = [(load_config(job), job) for job in sweep_jobs(overrides)]
    runs: dict[tuple[Path, ...], SubmittedRun] = {}
    trained_by: dict[Path, tuple[Path, ...]] = {}
    for config, job in configs:
        config.require(elsewhere=True)
        trained = tuple(config.folders)
        runs.setdefault(trained, SubmittedRun(list(map(str, trained)), job))
        for one in trained:
            if trained_by.setdefault(one, trained) != trained and not is_complete(one):
                raise ConfigError(
                    f"{one} would be trained by two jobs at once: let seeds be num_seeds apart, and grids differ"
                )
    folders = {config.root.outputs for config, _ in configs}
    if len(folders) > 1:
        raise ConfigError(f"outputs={','.join(sorted(folders))}: one submission has one folder of outputs")
    tasks = tasks_per_node(launch, [config for config, _ in configs])
    check_environments(config for config, _ in configs if not are_complete(config.folders))
    return Path(folders.pop()), list(runs.values()), tasks


def _choose(outputs: Path, runs: Sequence[SubmittedRun]) -> tuple[list[SubmittedRun], list[tuple[str, str, str]]]:
    """The runs to submit, and one row of the table for each run."""
    jobs, found = job_of_run(outputs), {status.job: status for status in statuses(outputs)}
    needed, rows = [], [("", "run", "")]
    for run in runs:
        folder = str(first_unfinished(list(map(Path, run.folders))).relative_to(outputs))
        before = [found[jobs[name]] for name in _relative(outputs, run) if name in jobs]
        if are_complete(list(map(Path, run.folders))):
            rows.append(("done", folder, ""))
        elif active := next((status for status in before if status.state in ("queued", "running")), None):
            rows.append((active.state, folder, "; ".join(filter(None, (f"job {active.job}", active.detail)))))
        else:
            needed.append(run)
            rows.append(("submit", folder, f"again; {before[0].detail}" if before else ""))
    return needed, rows


def _submit(outputs: Path, runs: Sequence[SubmittedRun], launch: Launch, tasks: int) -> list[str]:
    """Submit the runs as one array of jobs with `tasks` on each node; returns the id of each run's job."""
    from submitit import SlurmExecutor
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    from ppo_bench.sweeps.slurm.job import REQUEUE_IF_EARLY, Training

    executor = SlurmExecutor(jobs_folder(outputs), max_num_timeout=launch.max_timeouts)
    executor.update_parameters(
        job_name="ppo_bench",
        partition=launch.partition,
        gpus_per_node=launch.gpus or None,
        nodes=launch.nodes,
        ntasks_per_node=tasks,
        cpus_per_task=launch.cpus // tasks,
        mem=f"{round(launch.memory_gb * 1024)}M",
        time=launch.time_minutes,
        signal_delay_s=launch.signal_seconds,
        array_parallelism=launch.array_parallelism,
        setup=[REQUEUE_IF_EARLY, *launch.setup],
        stderr_to_stdout=True,
        # Since SLURM 22.05 srun does not inherit the job's number of CPUs.
        # When the first of several tasks fails, the others are ended.
        srun_args=[f"--cpus-per-task={launch.cpus // tasks}", "--distribution=block", "--kill-on-bad-exit=1"],
        additional_parameters={
            option: value
            for option, value in ({"requeue": True} | launch.sbatch).items()
            if value is not None and value is not False
        },
    )
    try:
        with redirect_stderr(io.StringIO()):  # submitit also prints the errors that it raises
            jobs = executor.map_array(Training(launch.max_timeouts), *zip(*runs, strict=True))
    except (FailedJobError, FailedSubmissionError) as error:
        raise refusal(error) from error
    ids = [job.job_id for job in jobs]
    record(outputs, {name: job for run, job in zip(runs, ids, strict=True) for name in _relative(outputs, run)})
    return ids


def _relative(outputs: Path, run: SubmittedRun) -> list[str]:
    """The folders of a training relative to `outputs`."""
    return [str(Path(folder).relative_to(outputs)) for folder in run.folders]


def _resources(launch: Launch, tasks: int, jobs: int) -> str:
    partition = f"partition {launch.partition}" if launch.partition else "the default partition"
    size = f"{launch.cpus} CPU, {launch.gpus} GPU, {launch.memory_gb:g} GB"
    if launch.nodes > 1:
        size = f"{launch.nodes} nodes, each {tasks} {'task' if tasks == 1 else 'tasks'}, {size}"
    return f"{jobs} {'job' if jobs == 1 else 'jobs'} of {size}, {launch.time_minutes} minutes on {partition}"
