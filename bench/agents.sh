#!/usr/bin/env bash
# Compares MEME, Agent57 and R2D2 on one GPU at equal network, environments, samples per insert and minutes, and draws
# the figure and the table of docs/results/agents/. Needs one GPU with 10 GB and 16 cores.
#
# MINUTES=10            training time of each run
# GAMES="breakout ..."  games (default: breakout montezuma_revenge)
# OUT=DIR               where figure, table and runs go (default: runs-agents)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

meme=${MEME:-target/release/meme}
minutes=${MINUTES:-10}
out=${OUT:-runs-agents}
read -r -a games <<<"${GAMES:-breakout montezuma_revenge}"
[ -x "$meme" ] || { echo "agents.sh: $meme was not found; run make build first." >&2; exit 1; }
mkdir -p "$out"

for game in "${games[@]}"; do
    for preset in quick agent57-quick r2d2-quick; do
        name=$game-$preset
        # A stop by SIGINT saves a checkpoint and ends with status 0; the frames of quick are never reached in time.
        timeout --signal=INT --kill-after=120 $((minutes * 60)) \
            "$meme" train "$game" --preset "$preset" --name "$name" --runs "$out" --fresh || [ $? = 124 ]
    done
    names=("$game-quick" "$game-agent57-quick" "$game-r2d2-quick")
    "$meme" plot "${names[@]}" --runs "$out" --group preset --out "$out/$game.svg"
done
"$meme" runs --runs "$out" | tee "$out/table.txt"
