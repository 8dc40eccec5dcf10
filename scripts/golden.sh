#!/usr/bin/env bash
# Regenerates the golden files of tests/golden into a temporary directory, compares them with the committed ones, one
# line per file, and checks the PyTorch peer of bench/ against them. The first run creates .venv-python.
#
# --write      replaces the committed files instead
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf 'golden: %s\n' "$*"; }
fail() { printf 'golden: %s\n' "$*" >&2; exit 1; }

write=0
case "${1:-}" in
    "") ;;
    --write) write=1 ;;
    *) fail "unknown option $1 (expected --write, which replaces the committed files)." ;;
esac

golden=tests/golden
scripts/python_venv.sh

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
say "computing every case in f32 and f64"
.venv-python/bin/python -B "$golden/make_golden.py" "$made"
if [ "$write" = 1 ]; then
    rm -f "$golden"/*.safetensors
    cp "$made"/*.safetensors "$made/cases.json" "$golden/"
    say "replaced the files of $golden"
else
    say "comparing with the committed files"
    .venv-python/bin/python -B "$golden/compare_golden.py" "$golden" "$made" ||
        fail "the committed files differ from the regenerated ones; scripts/golden.sh --write replaces them."
    say "all files match"
fi
.venv-python/bin/python -B bench/check_torch_peer.py || fail "bench/torch_peer.py does not match the golden files."
