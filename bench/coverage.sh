#!/usr/bin/env bash
# How much of montezuma_revenge's first room an agent visits that is paid for novelty alone, beside one that acts at
# random: the rewards of the game are hidden from both. Works in a checkout and in the folder that `make bundle` makes.
#
#   bench/coverage.sh [ARGS...]          ARGS are more options of `meme train` for the agent that learns
#   PRESET=quick SEED=1 MINUTES=22       what to train with, and how long; the other plays as many frames after it
#   RUNS=runs                            where the runs are left: coverage-novelty-SEED and coverage-random-SEED
#   MEME=path/to/meme                    the program, else the checkout's or the bundle's
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
MEME=${MEME:-$(command -v "$root/target/release/meme" "$root/meme" 2>/dev/null | head -n 1 || true)}
fail() { printf 'coverage: %s\n' "$*" >&2; exit 1; }
[ -n "$MEME" ] || fail "there is no meme beside this script; build it with make build, or set MEME to its path."
runs=${RUNS:-runs}
seed=${SEED:-1}

# Room first, then where the explorer stands. train NAME ARGS...
train() {
    local name=coverage-$1-$seed
    [ ! -e "$runs/$name" ] || fail "there is a run $runs/$name already; move it away, or set SEED or RUNS."
    "$MEME" train montezuma_revenge --preset "${PRESET:-quick}" --seed "$seed" --runs "$runs" --name "$name" \
        --set env.hide_rewards=true --set 'env.ram=[3, 42, 43]' "${@:2}"
}
# A number of the last row of metrics. last NAME FIELD
last() { tail -n 1 "$runs/coverage-$1-$seed/metrics.jsonl" | sed -n "s|.*\"$2\":\([0-9]*\).*|\1|p"; }

export -f train fail
export MEME PRESET runs seed
timeout --preserve-status --signal=INT $((${MINUTES:-22} * 60)) \
    bash -c 'train novelty --frames 1000000000 "$@"' bash "$@"
# Nothing is learned here: learning would begin with more sequences than so many frames have.
frames=$(last novelty frames)
sequences=$((frames / 40 + 1000))
train random --frames "$frames" --set actors.epsilon_base=1.0 --set actors.epsilon_exponent=0.0 \
    --set replay.minimum_fill=$sequences --set replay.capacity=$sequences
echo "| agent | frames | positions in the first room | positions |"
echo "|---|---:|---:|---:|"
for agent in novelty random; do
    printf '| %s | %s | %s | %s |\n' "$agent" "$(last "$agent" frames)" \
        "$(last "$agent" actor/positions_in_first_area)" "$(last "$agent" actor/positions)"
done
