#!/usr/bin/env bash
# Tests sweeps and training on a Ray cluster of three nodes on this machine. Ray goes into a virtual environment of its
# own, .venv-cluster, unless MEME_CLUSTER_PYTHON names a Python that has it. Without Ray its tests are skipped, and
# counted as skipped in the last line.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
python=${MEME_CLUSTER_PYTHON:-.venv-cluster/bin/python}
if [ -z "${MEME_CLUSTER_PYTHON:-}" ] && ! "$python" -c 'import ray' 2>/dev/null; then
    .venv/bin/python -m venv .venv-cluster
    if ! .venv-cluster/bin/pip install --quiet --requirement python/requirements/cluster.txt; then
        echo "SKIPPED: Ray cannot be installed, so sweeps and training on Ray are not tested" >&2
    fi
fi
export PYTHONPATH=$PWD/python MEME_PYTHON=${MEME_PYTHON:-$PWD/.venv/bin/python}
exec "$python" -B tests/cluster/run_tests.py
