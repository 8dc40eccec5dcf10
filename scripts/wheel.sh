#!/usr/bin/env bash
# Builds dist/meme_rl-VERSION-py3-none-PLATFORM.whl: the program, the worker and the Python package. libtorch is not in it;
# it comes from the torch package at run time, with or without CUDA.
#
# The platform is that of the newest symbols the program uses, such as manylinux_2_35_x86_64 on Debian 12: the wheel
# installs where glibc is at least as new. For an older one, run this script in that system's container.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

limit=20000000
cargo build --release --locked --bin meme
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
glibc=$(objdump -T target/release/meme | sed -n 's/.*GLIBC_2\.\([0-9]*\).*/\1/p' | sort -n | tail -n 1)

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
