#!/usr/bin/env bash
# Builds dist/meme_rl-VERSION-py3-none-PLATFORM.whl: the program, the worker and the Python package. libtorch is not in
# it; it comes from the torch package at run time, with or without CUDA.
#
# Built with a newer glibc, the program still runs with 2.28 (crates/meme/build.rs). Where a system's headers or another
# compiler ask for more, the wheel's platform is the glibc that it needs.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

limit=20000000
cargo build --release --locked --bin meme
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The newest version of a library's symbols, in the program and in the library for CUDA inside it.
newest() { grep -aoE "$1[0-9.]+" target/release/meme | sort -V | tail -n 1; }
glibc=$(newest GLIBC_2.)
glibc=${glibc#GLIBC_2.}
# The oldest that libtorch itself runs with.
glibc=$((glibc > 28 ? glibc : 28))
for oldest in GLIBC_2.28 GLIBCXX_3.4.24 CXXABI_1.3.11; do
    needed=$(newest "${oldest%.*}.")
    if [ "$(printf '%s\n' "$needed" "$oldest" | sort -V | tail -n 1)" != "$oldest" ]; then
        printf 'warning: the program needs %s, newer than %s of manylinux_2_28; see crates/meme/build.rs\n' \
            "$needed" "$oldest" >&2
        # As new as this system, whose libstdc++ came with its glibc.
        glibc=$(getconf GNU_LIBC_VERSION | sed 's/.*\.//')
    fi
done

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
cp -r python/meme_cluster python/meme_rl python/meme_worker python/pyproject.toml README.md LICENSE-MIT LICENSE-APACHE NOTICE "$stage/"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
printf '%s\n' "$version" > "$stage/VERSION"
mkdir -p "$stage/meme_rl/bin" dist
cp target/release/meme "$stage/meme_rl/bin/meme"
rm -f dist/meme_rl-*.whl
.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist \
    --config-settings="--build-option=--plat-name=manylinux_2_${glibc}_x86_64" "$stage"

wheel=$(echo dist/meme_rl-*.whl)
bytes=$(stat -c %s "$wheel")
printf 'wheel: %s (%s bytes)\n' "$wheel" "$bytes"
if [ "$bytes" -gt "$limit" ]; then
    printf 'error: the wheel is larger than %s bytes\n' "$limit" >&2
    exit 1
fi
