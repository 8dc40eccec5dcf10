#!/usr/bin/env bash
# Trains each of the 57 games for a short time and writes a Markdown table of their progress.
#
#   scripts/all_games.sh [GAME...]              all games, or the given ones
#   PRESET=cpu SECONDS_EACH=120 JOBS=1          preset, seconds per game, games in parallel
#   OUT=docs/results/all_games.md               the table
#   ARGS="--set run.threads=1"                  further options of `meme train`
#   MEME=path/to/meme                           path of the program (default: that of the checkout or bundle)
#
# Exits with status 1 if any game failed; the table shows which one and why.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
if [ -z "${MEME:-}" ]; then
    for candidate in "$here/../target/release/meme" "$here/../meme"; do
        if [ -f "$candidate" ] && [ -x "$candidate" ]; then
            MEME=$candidate
            break
        fi
    done
fi
: "${MEME:?meme was not found next to this script; run make build, or set MEME to its path}"
PRESET=${PRESET:-cpu}
SECONDS_EACH=${SECONDS_EACH:-120}
JOBS=${JOBS:-1}
OUT=${OUT:-docs/results/all_games.md}
ARGS=${ARGS:-}
export MEME PRESET SECONDS_EACH ARGS

work=$(mktemp -d)
export WORK="$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

games=${*:-$("$MEME" games --json | sed -n 's/^ *"rom": "\(.*\)",*$/\1/p')}
[ -n "$games" ] || { echo "error: meme games lists no games" >&2; exit 1; }

# One game: SIGINT after its time ends training cleanly, with a last row of metrics and a checkpoint.
cat > "$work/one.sh" <<'ONE'
game=$1
status=0
# shellcheck disable=SC2086 # ARGS may be several words.
timeout --preserve-status --signal=INT --kill-after=120 "$SECONDS_EACH" "$MEME" train "$game" --preset "$PRESET" --runs "$WORK/runs" \
    --name "$game" --frames 1000000000 $ARGS > "$WORK/$game.out" 2> "$WORK/$game.err" < /dev/null || status=$?
metrics="$WORK/runs/$game/metrics.jsonl"
last=$(tail -n 1 "$metrics" 2>/dev/null || true)
value() { printf '%s\n' "$last" | sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p"; }
frames=$(value frames); updates=$(value learner\\/updates); episodes=$(value actor\\/episodes)
if [ "$status" -eq 0 ] && [ "${frames:-0}" -gt 0 ]; then
    result=ok
else
    message=$(grep '^error: ' "$WORK/$game.err" | tail -n 1 | tr '|' '/')
    result="exit $status: ${message:-no message}"
    touch "$WORK/failed"
fi
rm -rf "$WORK/runs/$game"
awk -v game="$game" -v frames="${frames:-0}" -v updates="${updates:-0}" -v episodes="${episodes:-0}" \
    -v seconds="$SECONDS_EACH" -v result="$result" \
    'BEGIN { printf "| %s | %d | %.0f | %d | %d | %s |\n", game, frames, frames / seconds, updates, episodes, result }' \
    > "$WORK/$game.row"
cat "$WORK/$game.row" >&2
ONE
# shellcheck disable=SC2086 # one word per game
printf '%s\n' $games | xargs -P "$JOBS" -n 1 sh "$work/one.sh"

mkdir -p "$(dirname "$OUT")"
{
    echo "# All games, started"
    echo "Each game was trained for $SECONDS_EACH s with the preset \`$PRESET\`, $JOBS at a time. The table shows that"
    echo "every game starts, plays, fills replay and learns, not how well. Updates are 0 if replay did not reach its minimum"
    echo "fill, episodes if none ended in time. Frames/s include the time to start."
    echo
    cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo 2>/dev/null | head -n 1)
    gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 || true)
    echo "Command: \`PRESET=$PRESET SECONDS_EACH=$SECONDS_EACH JOBS=$JOBS${ARGS:+ ARGS=\"$ARGS\"} scripts/all_games.sh\`."
    echo "Machine: $(nproc) cores (${cpu:-unknown})${gpu:+, $gpu}. Date: $(date -u +%F). $("$MEME" --version)."
    echo
    echo "| game | frames | frames/s | updates | episodes | |"
    echo "|---|---:|---:|---:|---:|---|"
    for game in $games; do cat "$work/$game.row"; done
} > "$OUT"
echo "wrote $OUT" >&2
[ ! -e "$work/failed" ]
