#!/usr/bin/env bash
# Runs every check that needs a GPU and prints one line per check. Works in a checkout and in the directory that
# `make bundle` creates.
#
#   scripts/gpu_check.sh [PART...]     tests, faults, resume, compare, inference or system (default: all)
#   OUT=gpu_check                      directory for the output of the programs
#   MEME=path/to/meme                  path of the program (default: that of the checkout or bundle)
#   PYTHON=python3                     a Python with torch and CUDA
#   SECONDS_SYSTEM=600                 seconds that `system` measures
#
# Exits with status 1 if a check failed. All parts take about 25 minutes, 10 of them for `system`.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname -- "$here")
first_command() { command -v "$@" 2>/dev/null | head -n 1; }
MEME=${MEME:-$(first_command "$root/target/release/meme" "$root/meme" || true)}
PYTHON=${PYTHON:-${MEME_PYTHON:-$(first_command "$root/.venv/bin/python" python3 || true)}}
: "${MEME:?meme was not found next to this script; run make build, or set MEME to its path}"
: "${PYTHON:?no Python was found; set PYTHON to one that has torch}"
export MEME PYTHON MEME_PYTHON=$PYTHON
OUT=${OUT:-gpu_check}
mkdir -p "$OUT"
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
failures=0

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }
passed() { say "ok      $*"; }
failed() { say "FAILED  $*"; failures=$((failures + 1)); }

# Runs a command and prints one line with its result. check WHAT COMMAND...
check() {
    local what=$1
    shift
    if "$@"; then passed "$what"; else failed "$what"; fi
}

# Whether a run ended with status 1 and an error that contains all words. one_sentence FILE STATUS WORD...
one_sentence() {
    local file=$1 status=$2 word
    shift 2
    say "        $(grep '^error: ' "$file" | tail -n 1)"
    [ "$status" -eq 1 ] || return 1
    ! grep -qE 'panicked|terminate called|frame #' "$file" || return 1
    for word in "$@"; do
        grep '^error: ' "$file" | grep -qF -- "$word" || return 1
    done
}

# Waits until a command succeeds, for SECONDS at most. wait_until SECONDS COMMAND...
wait_until() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.5
    done
}

# Frame count of a run's last row of metrics.
frames() { tail -n 1 "$work/runs/$1/metrics.jsonl" 2>/dev/null | sed -n 's/.*"frames":\([0-9]*\).*/\1/p'; }
learns() { grep -q '"learner/loss":' "$work/runs/$1/metrics.jsonl" 2>/dev/null; }
has_checkpoint() { compgen -G "$work/runs/$1/checkpoints/[0-9]*" >/dev/null; }
# Starts training in the background with the paper's network and an early start of learning; sets `pid`. Messages go to
# NAME.err. start NAME ARGS...
start() {
    "$MEME" train pong --preset quick --runs "$work/runs" --name "$1" --set replay.minimum_fill=100 \
        --set metrics.interval_seconds=1 "${@:2}" >"$OUT/$1.out" 2>"$OUT/$1.err" &
    pid=$!
}
# Waits for the started command to end; sets `status`.
ended() {
    status=0
    wait "$pid" || status=$?
}
killed() {
    kill -9 "$pid"
    wait "$pid" 2>/dev/null || true
}
# Whether a started run has passed FRAMES. came_further NAME FRAMES
came_further() { learns "$1" && grep -q frames/s "$OUT/$1.err" && [ "$(frames "$1")" -gt "$2" ]; }

part_tests() {
    local tests="$root/bin/gpu_tests" status=0
    if [ -x "$tests" ]; then
        # The launcher finds libtorch.
        MEME_PROGRAM="$tests" "$MEME" --test-threads=1 --nocapture >"$OUT/tests.txt" 2>&1 || status=$?
    else
        (cd "$root" && cargo test --release --locked -p agent --features gpu-tests --test gpu -- \
            --test-threads=1 --nocapture) >"$OUT/tests.txt" 2>&1 || status=$?
    fi
    check "tests: $(grep '^test result' "$OUT/tests.txt" || echo 'no result')" [ "$status" -eq 0 ]
}

part_faults() {
    CUDA_VISIBLE_DEVICES='' start absent --set run.device=cuda
    ended
    check "faults: no GPU" one_sentence "$OUT/absent.err" "$status" GPU
    check "faults: no GPU leaves no run" [ ! -e "$work/runs/absent" ]

    # Another program occupies all GPU memory except 3 GB.
    "$PYTHON" -c 'import time, torch
hog = torch.empty(torch.cuda.mem_get_info()[0] - 3 * 2**30, dtype=torch.uint8, device="cuda")
print("full", flush=True)
time.sleep(600)' >"$work/hog" &
    local hog=$!
    wait_until 60 grep -q full "$work/hog" || true
    start full
    ended
    kill "$hog"
    wait "$hog" 2>/dev/null || true
    check "faults: a full GPU" one_sentence "$OUT/full.err" "$status" memory learner.batch_size
    start full
    check "faults: the same command with free memory" wait_until 120 learns full
    killed

    if ! cc -shared -fPIC -O1 -o "$work/gone.so" "$here/gpu_gone.c" -ldl 2>"$OUT/gone.txt"; then
        failed "faults: a GPU that disappears: no C compiler was found"
        return
    fi
    LD_PRELOAD="$work/gone.so" GPU_GONE="$work/gone" start gone --set checkpoint.every_minutes=0.3
    wait_until 180 has_checkpoint gone || true
    touch "$work/gone"
    ended
    check "faults: a GPU that disappears" one_sentence "$OUT/gone.err" "$status" 'the GPU stopped working'
    start gone --set checkpoint.every_minutes=0.3
    check "faults: and comes back" wait_until 120 came_further gone 0
    killed
}

part_resume() {
    start resumed --json
    wait_until 120 learns resumed || true
    sleep 30
    kill -INT "$pid"
    ended
    local saved
    saved=$(frames resumed)
    check "resume: Ctrl-C saves, at $saved frames" [ "$status" -eq 0 ]
    check "resume: a checkpoint exists" has_checkpoint resumed
    start resumed
    check "resume: continues from there" wait_until 120 came_further resumed "$saved"
    sleep 10
    killed
    start resumed
    check "resume: continues after kill -9" wait_until 120 came_further resumed "$saved"
    kill -INT "$pid"
    ended
    check "resume: Ctrl-C saves again, at $(frames resumed) frames" [ "$status" -eq 0 ]
}

part_compare() {
    local status=0
    ROUNDS=${ROUNDS:-1} "$root/bench/compare.sh" >"$OUT/compare.md" 2>"$OUT/compare.err" || status=$?
    cat "$OUT/compare.md"
    check "compare: next to PyTorch" [ "$status" -eq 0 ]
}

part_inference() {
    local status=0
    "$MEME" bench inference --preset paper --device cuda --environments 128 --beside-learner \
        >"$OUT/inference.txt" 2>&1 || status=$?
    cat "$OUT/inference.txt"
    check "inference: next to a learner" [ "$status" -eq 0 ]
}

part_system() {
    local status=0
    "$MEME" bench system pong --preset paper --device cuda --seconds "${SECONDS_SYSTEM:-600}" \
        >"$OUT/system.txt" 2>"$OUT/system.err" || status=$?
    cat "$OUT/system.txt"
    check "system: complete training" [ "$status" -eq 0 ]
}

if [ $# -eq 0 ]; then
    set -- tests faults resume compare inference system
fi
for part in "$@"; do
    if ! declare -F "part_$part" >/dev/null; then
        printf 'error: unknown part "%s" (expected tests, faults, resume, compare, inference or system)\n' "$part" >&2
        exit 2
    fi
done
say "$("$MEME" --version), $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null || echo 'no GPU')"
for part in "$@"; do
    "part_$part"
done
if [ "$failures" -gt 0 ]; then
    say "$failures failed"
    exit 1
fi
say "all passed"
