#!/usr/bin/env bash
# Trains each of the 57 games for a while, and writes a table of how far each came, as Markdown.
#
#   scripts/all_games.sh [GAME...]              all games, or these
#   PRESET=cpu SECONDS_EACH=120 JOBS=1          what to train with, how long, and how many games at a time
#   OUT=docs/results/all_games.md               the table
#   ARGS="--set run.threads=1"                  more options of `meme train`
#   MEME=path/to/meme                           the program, else the checkout's or the bundle's
#
# The status is 1 if any game failed; the table says which, and why.
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
: "${MEME:?there is no meme beside this script; build it with make build, or set MEME to its path}"
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
[ -n "$games" ] || { echo "meme games lists no games" >&2; exit 1; }

# One game: SIGINT after its time ends training cleanly, with a last row of metrics and a checkpoint.
cat > "$work/one.sh" <<'ONE'
game=$1
status=0
# shellcheck disable=SC2086 # ARGS are several words.
timeout --preserve-status --signal=INT --kill-after=120 "$SECONDS_EACH" "$MEME" train "$game" --preset "$PRESET" --runs "$WORK/runs" \
    --name "$game" --frames 1000000000 $ARGS > "$WORK/$game.out" 2> "$WORK/$game.err" < /dev/null || status=$?
metrics="$WORK/runs/$game/metrics.jsonl"
last=$(tail -n 1 "$metrics" 2>/dev/null || true)
value() { printf '%s\n' "$last" | sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p"; }
frames=$(value frames); updates=$(value learner\\/updates); episodes=$(value actor\\/episodes)
if [ "$status" -eq 0 ] && [ "${frames:-0}" -gt 0 ]; then
    said=ok
else
    # The last thing it said that is no progress line.
    said=$(grep '^error: ' "$WORK/$game.err" | tail -n 1 | tr '|' '/')
    said="exit $status: ${said:-nothing was said}"
    touch "$WORK/failed"
fi
rm -rf "$WORK/runs/$game"
awk -v game="$game" -v frames="${frames:-0}" -v updates="${updates:-0}" -v episodes="${episodes:-0}" \
    -v seconds="$SECONDS_EACH" -v said="$said" \
    'BEGIN { printf "| %s | %d | %.0f | %d | %d | %s |\n", game, frames, frames / seconds, updates, episodes, said }' \
    > "$WORK/$game.row"
cat "$WORK/$game.row" >&2
ONE
# shellcheck disable=SC2086 # one word a game
printf '%s\n' $games | xargs -P "$JOBS" -n 1 sh "$work/one.sh"

mkdir -p "$(dirname "$OUT")"
{
    echo "# All games, started"
    echo "Each game was trained for $SECONDS_EACH s with the preset \`$PRESET\`, $JOBS at a time. It shows that every game starts, plays,"
    echo "fills replay and learns; it says nothing of how well. Updates are 0 where replay had not its minimum fill yet, and"
    echo "episodes where none ended in that time. Frames/s count the time to start."
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
echo "the table is in $OUT" >&2
[ ! -e "$work/failed" ]
