#!/usr/bin/env bash
# demo_resume.sh [OVERRIDE...]: train CartPole twice, once with a kill -9 in the middle, and compare all that was learnt.
set -euo pipefail
outputs=outputs/demo-resume steps=${STEPS:-100000}
train() { # NAME OVERRIDE...
    exec python -m ppo_bench env=cartpole device=cpu "total_timesteps=$steps" checkpoint.every_iterations=20 \
        "outputs=$outputs/$1" "${@:2}"
}
rows() { find "$outputs/killed" -name metrics.jsonl -exec cat {} + 2> /dev/null | wc -l; }
arrays() { find "$1"/checkpoints/iteration_*/arrays.safetensors | sort | tail -n 1; }

rm -rf "$outputs"
echo "== to the end, without a break"
straight=$(train straight "$@" | tail -n 1)
echo "== once more, in another folder; kill -9 in the middle"
train killed "$@" > /dev/null &
until [ "$(rows)" -ge $((steps / 1024)) ]; do # half of the iterations of 512 steps
    kill -0 $! || { echo "the training ended before it could be killed" >&2; exit 1; }
    sleep 0.05
done
kill -9 $!
wait $! 2> /dev/null || true
echo "   killed after iteration $(rows)"
echo "== the same command again: it resumes"
resumed=$(train killed "$@" | tail -n 1)
cmp "$(arrays "$straight")" "$(arrays "$resumed")"
echo "the same parameters, bit for bit"
