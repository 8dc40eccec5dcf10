#!/usr/bin/env bash
# Sets up everything that building and running need, inside this checkout: .venv with pinned Python packages, and the
# link .venv/libtorch, which .cargo/config.toml refers to. Does nothing if all of it exists, quickly and offline.
#
# PYTHON=...      the Python for .venv (default: the first of python3, python3.14 ... python3.11 that is new enough)
# MEME_CUDA=0|1   without or with the CUDA libraries (default: with, if nvidia-smi works)
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || fail "PYTHON=$PYTHON is not a command."
        new_enough "$PYTHON" || fail "PYTHON=$PYTHON is older than Python 3.11."
        printf '%s' "$PYTHON"
        return
    fi
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null && new_enough "$candidate"; then
            printf '%s' "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer was found; on Debian: apt install python3 python3-venv"
}

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "only Linux on x86-64 is supported; this is $(uname -s) on $(uname -m)."
command -v cargo >/dev/null || fail "cargo was not found; install a stable Rust toolchain (rustup, or on Debian 13: apt install cargo)."
command -v c++ >/dev/null || fail "no C++ compiler was found, which libtorch's bindings need; on Debian: apt install g++"

if [ "${MEME_CUDA:-$(scripts/has_gpu.sh && echo 1 || echo 0)}" = 1 ]; then
    torch_packages=python/requirements/torch-cuda.txt
    torch_size="about 2.7 GB, 4.7 GB unpacked"
else
    torch_packages=python/requirements/torch-cpu.txt
    torch_size="about 545 MB, 1.3 GB unpacked"
fi

# A virtual environment whose base Python is missing, or that was created elsewhere, is created again.
if [ -d .venv ] && ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    say ".venv is broken; creating it again."
    rm -rf .venv
fi
if [ ! -d .venv ]; then
    python=$(find_python)
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module; on Debian: apt install python$version-venv"
    say "creating .venv with $("$python" --version)"
    "$python" -m venv .venv || { rm -rf .venv; fail "$python -m venv failed."; }
fi

# Whether Python finds all modules. has_modules MODULES...
has_modules() { .venv/bin/python -c 'import sys; from importlib.util import find_spec; sys.exit(not all(map(find_spec, sys.argv[1:])))' "$@"; }

# Installs a requirements file unless it is installed and complete; a stamp keeps the file's contents.
# install NAME FILE SIZE MODULES [PIP OPTIONS]
install() {
    local stamp=.venv/installed-$1.txt again=()
    if cmp -s "$2" "$stamp"; then
        # shellcheck disable=SC2086 # several words
        has_modules $4 && return
        say "Python packages are missing from .venv."
        again=(--force-reinstall --no-deps)
    fi
    say "downloading the Python packages of $2 ($3)"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "${again[@]}" "${@:5}" --requirement "$2" ||
        fail "cannot install the packages of $2; see the messages of pip above, then run the same command again."
    cp "$2" "$stamp"
}
install worker python/requirements/worker.txt "about 21 MB" "ale_py cloudpickle gymnasium numpy"
install torch "$torch_packages" "$torch_size" torch --no-deps

torch=$(.venv/bin/python -c 'import importlib.util; print(importlib.util.find_spec("torch").submodule_search_locations[0])')
link=${torch#"$PWD/.venv/"}
if [ "$(readlink .venv/libtorch || true)" != "$link" ]; then
    ln -sfn "$link" .venv/libtorch
fi
