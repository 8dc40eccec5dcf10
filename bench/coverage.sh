#!/usr/bin/env bash
# Compares how much of montezuma_revenge's first room an agent rewarded for novelty alone visits with a random agent;
# neither sees the game's rewards. Works in a checkout and in the bundle of `make bundle`.
#
#   bench/coverage.sh [ARGS...]          ARGS are further options of `meme train` for the learning agent
#   PRESET=quick SEED=1 MINUTES=22       preset, seed and training time; the random agent then plays as many frames
#   RUNS=runs                            where to put the runs coverage-novelty-SEED and coverage-random-SEED
#   MEME=path/to/meme                    the binary (default: the checkout's or the bundle's)
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
MEME=${MEME:-$(command -v "$root/target/release/meme" "$root/meme" 2>/dev/null | head -n 1 || true)}
fail() { printf 'coverage: %s\n' "$*" >&2; exit 1; }
[ -n "$MEME" ] || fail "meme not found; run make build, or set MEME to the binary."
runs=${RUNS:-runs}
seed=${SEED:-1}

# train NAME ARGS...: RAM holds the room at address 3 and the position of the explorer at 42 and 43.
train() {
    local name=coverage-$1-$seed
    [ ! -e "$runs/$name" ] || fail "the run $runs/$name already exists; move it away, or set SEED or RUNS."
    "$MEME" train montezuma_revenge --preset "${PRESET:-quick}" --seed "$seed" --runs "$runs" --name "$name" \
        --set env.hide_rewards=true --set 'env.ram=[3, 42, 43]' "${@:2}"
}
# last NAME FIELD: an integer from the last row of metrics.
last() { tail -n 1 "$runs/coverage-$1-$seed/metrics.jsonl" | sed -n "s|.*\"$2\":\([0-9]*\).*|\1|p"; }

export -f train fail
export MEME PRESET runs seed
timeout --preserve-status --signal=INT $((${MINUTES:-22} * 60)) \
    bash -c 'train novelty --frames 1000000000 "$@"' bash "$@"
# Nothing is learned here: the minimum fill is more sequences than that many frames hold.
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
