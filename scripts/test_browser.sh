#!/usr/bin/env bash
# Opens the pages of `meme watch` and `meme report` in headless Chromium. Installs Chromium if it is missing and this
# user may; otherwise the tests are skipped, loudly.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
if ! command -v chromedriver >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get install -y chromium chromium-driver >/dev/null 2>&1 || true
fi
if ! command -v chromedriver >/dev/null; then
    echo "SKIPPED: the browser tests need Chromium (apt-get install chromium chromium-driver)" >&2
    exit 0
fi
.venv/bin/python -B -m unittest discover --start-directory tests/browser
