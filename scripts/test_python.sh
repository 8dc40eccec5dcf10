#!/usr/bin/env bash
# Installs dist/meme_rl-*.whl in .venv-python, twice, since an update installs over another version, and runs the tests of
# python/tests against the installed package.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

scripts/python_venv.sh
for option in --upgrade --force-reinstall; do
    .venv-python/bin/python -m pip install --quiet --disable-pip-version-check --no-deps "$option" dist/meme_rl-*.whl
done
.venv-python/bin/python -m pip check --disable-pip-version-check
(cd python && ../.venv-python/bin/python -m mypy)
.venv-python/bin/python -B python/api_page.py | cmp - docs/python_api.md ||
    { echo "error: docs/python_api.md is not that of the docstrings; write it again with python/api_page.py" >&2; exit 1; }
# From another directory, so that the checkout's own packages are not found.
tests=$PWD/python/tests
python=$PWD/.venv-python/bin/python
cd "$(mktemp -d)"
"$python" -B -m unittest discover --start-directory "$tests"
