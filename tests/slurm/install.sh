#!/usr/bin/env bash
# What tests/slurm needs: SLURM's daemons and commands, and munge. Nothing is started; the tests do that themselves.
set -euo pipefail
PATH="$PATH:/usr/sbin:/usr/local/sbin"
for program in slurmctld slurmd munged sbatch srun squeue scontrol scancel sinfo; do
    command -v "$program" > /dev/null || missing=$program
done
[ -n "${missing:-}" ] || exit 0
why="make test-slurm needs $missing, of SLURM and munge"
"$(dirname "$0")/../../launch/apt_install.sh" "$why" slurmctld slurmd slurm-client munge
