#!/usr/bin/env bash
# The runs behind the first table of "Earlier runs" in docs/results.md: four tasks, three seeds each, one after the other.
# Usage: launch/readme_table.sh [overrides for every run], from the root of a clone after `make setup`.
set -euo pipefail
.venv/bin/python -m ppo_bench -m env=cartpole,acrobot,mountain_car,hopper seed=1,2,3 "$@"
