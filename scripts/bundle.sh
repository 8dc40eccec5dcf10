#!/usr/bin/env bash
# Builds dist/meme-VERSION-linux-x86_64/ and its tarball: the contents of the wheel, the comparison with PyTorch and the
# GPU checks, for a machine with torch 2.11, Python and a GPU but neither Rust nor a network. The bundle does not refer
# to this checkout.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

limit=40000000
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=meme-$version-linux-x86_64
bundle=dist/$name

scripts/wheel.sh
tests=$(cargo test --release --locked -p agent --features gpu-tests --test gpu --no-run --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p')
rm -rf "$bundle" "$bundle.tar.gz"
mkdir -p "$bundle/bin" "$bundle/python" "$bundle/bench" "$bundle/scripts" "$bundle/docs" "$bundle/tests/golden"
.venv/bin/python -m zipfile --extract dist/meme_rl-"$version"-*.whl "$bundle/python"
# Python's zipfile does not restore permissions.
chmod +x "$bundle/python/meme_rl/bin/meme"
strip -o "$bundle/bin/gpu_tests" "$tests"
cat > "$bundle/meme" <<'LAUNCHER'
#!/bin/sh
# Starts meme with MEME_PYTHON (default: python3), which has torch 2.11; see python/meme_rl/launcher.py.
exec "${MEME_PYTHON:-python3}" "$(dirname -- "$(readlink -f -- "$0")")/python/meme_rl/launcher.py" "$@"
LAUNCHER
chmod +x "$bundle/meme"
cp -r python/requirements "$bundle/python/requirements"
cp -r configs "$bundle/configs"
cp bench/*.sh bench/comparison.py bench/torch_peer.py bench/peer_network.py "$bundle/bench/"
cp tests/golden/{agent_reference,golden_inputs}.py "$bundle/tests/golden/"
cp scripts/all_games.sh scripts/gpu_check.sh scripts/gpu_gone.c "$bundle/scripts/"
# The pages that the README links to, without curves and pictures.
(cd docs && find . -name '*.md' -exec cp --parents {} "$OLDPWD/$bundle/docs/" \;)
cp README.md LICENSE-MIT LICENSE-APACHE NOTICE "$bundle/"
find "$bundle" -name __pycache__ -prune -exec rm -rf {} +

tar -C dist -czf "$bundle.tar.gz" "$name"
bytes=$(du -sb "$bundle" | cut -f 1)
printf 'bundle: %s (%s bytes), %s.tar.gz (%s bytes)\n' "$bundle" "$bytes" "$bundle" "$(stat -c %s "$bundle.tar.gz")"
if [ "$bytes" -gt "$limit" ]; then
    printf 'error: the bundle is larger than %s bytes\n' "$limit" >&2
    exit 1
fi
