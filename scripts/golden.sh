#!/usr/bin/env bash
# Regenerates the golden files of tests/golden into a temporary directory, compares them with the committed ones, one
# line per file, and checks the PyTorch peer of bench/ against them. The first run creates .venv-golden.
#
# --write      replaces the committed files instead
# PYTHON=...   the Python to create .venv-golden with (default: python3)
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
requirements=$golden/requirements.txt
stamp=.venv-golden/installed.txt
if [ -d .venv-golden ] && ! .venv-golden/bin/python -c 'import pip' 2>/dev/null; then
    say ".venv-golden is no longer usable; recreating it."
    rm -rf .venv-golden
fi
if [ ! -d .venv-golden ]; then
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "$python was not found; on Debian: apt install python3 python3-venv"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module; on Debian: apt install python3-venv"
    say "creating .venv-golden with $("$python" --version)"
    "$python" -m venv .venv-golden || { rm -rf .venv-golden; fail "$python -m venv failed."; }
fi
if ! cmp -s "$requirements" "$stamp"; then
    say "downloading the packages of $requirements (about 2.7 GB, 4.7 GB unpacked:" \
        "PyTorch's wheel needs the CUDA libraries to import, but no GPU is used)"
    .venv-golden/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$requirements" ||
        fail "cannot install the packages; see the messages of pip above, then run the same command again."
    cp "$requirements" "$stamp"
fi

made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
say "computing every case in f32 and f64"
.venv-golden/bin/python -B "$golden/make_golden.py" "$made"
if [ "$write" = 1 ]; then
    rm -f "$golden"/*.safetensors
    cp "$made"/*.safetensors "$made/cases.json" "$golden/"
    say "replaced the files of $golden"
else
    say "comparing with the committed files"
    .venv-golden/bin/python -B "$golden/compare_golden.py" "$golden" "$made" ||
        fail "the committed files differ from the regenerated ones; scripts/golden.sh --write replaces them."
    say "all files match"
fi
.venv-golden/bin/python -B bench/check_torch_peer.py || fail "bench/torch_peer.py does not match the golden files."
