#!/bin/sh
# Starts bin/meme with the libtorch of this machine's Python.
#
# MEME_PYTHON   a Python with torch 2.11 (default: python3)
# MEME_PROGRAM  another program in bin/ (default: meme)
here=$(dirname -- "$(readlink -f -- "$0")")
python=${MEME_PYTHON:-python3}
command -v "$python" >/dev/null || {
    echo "error: $python was not found; set MEME_PYTHON to a Python that has torch 2.11." >&2
    exit 1
}
libraries=$("$python" - <<'PYTHON'
import glob, importlib.metadata, importlib.util, os, sys

spec = importlib.util.find_spec("torch")
if spec is None or not spec.submodule_search_locations:
    sys.exit(f"error: {sys.executable} has no torch; install torch==2.11.0 or set MEME_PYTHON to a Python that has it.")
torch = spec.submodule_search_locations[0]
version = importlib.metadata.version("torch")
if not version.startswith("2.11."):
    sys.exit(f"error: {sys.executable} has torch {version}, but this build needs 2.11; set MEME_PYTHON to another Python.")
if not os.path.exists(os.path.join(torch, "lib", "libtorch_cuda.so")):
    sys.exit(f"error: torch {version} of {sys.executable} is built without CUDA, which this build needs.")
site = os.path.dirname(torch)
print(":".join([os.path.join(torch, "lib"), *sorted(glob.glob(os.path.join(site, "nvidia", "*", "lib")))]))
PYTHON
) || exit 1
LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
export MEME_PYTHON="$python"
exec "$here/bin/${MEME_PROGRAM:-meme}" "$@"
