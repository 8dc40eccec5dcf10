#!/usr/bin/env bash
# Installs dist/meme_rl-*.whl in .venv-python, twice, since an update installs over another version, and runs the tests
# of python/tests against the installed package.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

scripts/python_venv.sh
if [ ! -e dist/meme_rl-*-manylinux_2_28_x86_64.whl ]; then
    # Compilers of newer systems ask for a newer libstdc++ (GCC 13 of Debian 13 and Ubuntu 24.04).
    if [ "$(getconf GNU_LIBC_VERSION | sed 's/.*\.//')" -le 36 ]; then
        echo "error: the wheel does not run with glibc 2.28; \`make wheel\` says why" >&2
        exit 1
    fi
    echo "SKIPPED: a wheel that runs with glibc 2.28 needs the compiler of an older system, such as Debian 12" >&2
fi
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
