#!/usr/bin/env bash
# Creates .venv-python, an ordinary virtual environment with a torch that imports, for the tests of the wheel and for
# the golden files. Does nothing if it exists and is complete.
#
# PYTHON=...   the Python to create it with (default: python3)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf 'python: %s\n' "$*"; }
fail() { printf 'python: %s\n' "$*" >&2; exit 1; }

requirements=python/requirements/python.txt
stamp=.venv-python/installed.txt
if [ -d .venv-python ] && ! .venv-python/bin/python -c 'import pip' 2>/dev/null; then
    say ".venv-python is no longer usable; recreating it."
    rm -rf .venv-python
fi
if [ ! -d .venv-python ]; then
    python=${PYTHON:-python3}
    command -v "$python" >/dev/null || fail "$python was not found; on Debian: apt install python3 python3-venv"
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module; on Debian: apt install python3-venv"
    say "creating .venv-python with $("$python" --version)"
    "$python" -m venv .venv-python || { rm -rf .venv-python; fail "$python -m venv failed."; }
fi
if ! cmp -s "$requirements" "$stamp"; then
    say "downloading the packages of $requirements (about 2.8 GB, 5 GB unpacked)"
    .venv-python/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$requirements" ||
        fail "cannot install the packages; see the messages of pip above, then run the same command again."
    cp "$requirements" "$stamp"
fi
