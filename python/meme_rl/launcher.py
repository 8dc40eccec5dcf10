"""The `meme` command: starts the program of this package with the libtorch of this Python's torch.

The dynamic linker needs the path of libtorch before the program starts. Finding it does not import torch, which would
take seconds.

MEME_PROGRAM  another program to start in the same way
MEME_PYTHON   the Python that runs environments (default: this one)
"""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

#: The series of torch whose libtorch the program is built for.
TORCH = "2.11"


class LaunchError(Exception):
    """The program cannot be started; the text says why and what to do."""


def libraries() -> list[Path]:
    """Returns the directories of libtorch and of the CUDA libraries that it needs, without importing torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise LaunchError(f"{sys.executable} has no torch; run `{sys.executable} -m pip install 'torch=={TORCH}.*'`")
    version = importlib.metadata.version("torch")
    if not version.startswith(f"{TORCH}."):
        raise LaunchError(
            f"{sys.executable} has torch {version}, but this build of meme needs {TORCH}; "
            f"run `{sys.executable} -m pip install 'torch=={TORCH}.*'`"
        )
    torch = Path(spec.submodule_search_locations[0])
    return [torch / "lib", *sorted(torch.parent.glob("nvidia/*/lib"))]


def environment() -> dict[str, str]:
    """Returns the environment variables that the program starts with."""
    paths = [str(directory) for directory in libraries()]
    if before := os.environ.get("LD_LIBRARY_PATH"):
        paths.append(before)
    return {"MEME_PYTHON": sys.executable} | os.environ | {"LD_LIBRARY_PATH": ":".join(paths)}


def program() -> Path:
    """Returns the path of the program."""
    path = Path(os.environ.get("MEME_PROGRAM") or Path(__file__).with_name("bin") / "meme")
    if not os.access(path, os.X_OK):
        raise LaunchError(f"{path} is missing or not a program; reinstall the package meme-rl")
    return path


def main() -> NoReturn:
    """Replaces this process by the program."""
    try:
        path = program()
        os.execve(path, [path.name, *sys.argv[1:]], environment())
    except LaunchError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: cannot start meme: {error}")


if __name__ == "__main__":
    main()
