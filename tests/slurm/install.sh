#!/usr/bin/env bash
# What tests/slurm needs: SLURM's daemons and commands, and munge. Nothing is started; the tests do that themselves.
set -euo pipefail
PATH="$PATH:/usr/sbin:/usr/local/sbin"
for program in slurmctld slurmd munged sbatch srun squeue scontrol scancel sinfo; do
    command -v "$program" > /dev/null || missing=$program
done
[ -n "${missing:-}" ] || exit 0
install="apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge"
if [ "$(id -u)" != 0 ] || ! command -v apt-get > /dev/null; then
    echo "make test-slurm needs $missing, of SLURM and munge; on Debian, as root: $install" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! (apt-get update && $install) > "$log" 2>&1; then
    tail "$log" >&2
    exit 1
fi
rm "$log"
