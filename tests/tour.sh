#!/bin/sh
# Every kind of run that a new user tries, with few steps: tests/tour.sh PYTHON OUTPUTS. It ends at the first that fails.
set -eu
python=$1
outputs=$2
few="device=cpu outputs=$outputs"

say() { printf '\n== %s\n' "$*"; }
ppo_bench() { module=$1; shift; say "python -m $module $*"; "$python" -m "$module" "$@"; }

ppo_bench ppo_bench --version
ppo_bench ppo_bench $few total_timesteps=2048
run=$(ppo_bench ppo_bench $few total_timesteps=2048 | tail -n 1)                           # finished: it is reported
ppo_bench ppo_bench $few env=breakout framework=torch_compile total_timesteps=2048
ppo_bench ppo_bench $few env=hopper framework=jax_xla total_timesteps=4096
ppo_bench ppo_bench $few framework=jax_xla backend=jax num_seeds=4 total_timesteps=4096 'tracker=[tensorboard]'

say "a sweep that is interrupted, and goes on"
"$python" -m ppo_bench -m $few 'seed=range(11,14)' total_timesteps=20_000 & sweep=$!
while ! ls "$outputs"/default/*/seed11/metrics.jsonl > /dev/null 2>&1; do sleep 0.1; done
kill -INT $sweep
code=0; wait $sweep || code=$?
test $code = 130
ppo_bench ppo_bench -m $few 'seed=range(11,14)' total_timesteps=20_000
ppo_bench ppo_bench -m $few hydra/launcher=joblib hydra.launcher.n_jobs=2 'seed=range(21,23)' total_timesteps=2048
ppo_bench ppo_bench -m $few hydra/sweeper=optuna hydra.sweeper.n_trials=2 hydra.sweeper.n_jobs=1 \
    'ppo.gamma=interval(0.9,0.99)' total_timesteps=2048

ppo_bench ppo_bench.evaluate "$run" episodes=5
ppo_bench ppo_bench.watch "$outputs" --once
ppo_bench ppo_bench.query "select count(*) from runs" "$outputs"
ppo_bench ppo_bench.report "$outputs" --out "$outputs/report"
ppo_bench ppo_bench.check env=cartpole --num-steps 300
ppo_bench ppo_bench.equivalence env=cartpole total_timesteps=2048 "outputs=$outputs"
ppo_bench ppo_bench.bench env=cartpole framework=torch_eager backend=gymnasium rounds=1 iterations=2 "outputs=$outputs"

say "import ppo_bench"
"$python" - "$run" "$outputs" <<'END'
import sys

import numpy as np

import ppo_bench

trained = ppo_bench.load(sys.argv[1])
print(trained.act(np.zeros((3, 4), np.float32)), trained.evaluate(episodes=3))
print(ppo_bench.results(sys.argv[2]).shape)
END
say "all of it went well"
