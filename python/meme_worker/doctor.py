"""Prints what this Python can import as JSON, for `meme doctor`: `python doctor.py GAME...`"""

import contextlib
import importlib
import importlib.metadata
import json
import platform
import sys


def version(module: str, distribution: str) -> str | None:
    """Returns the version of a package; None if it cannot be imported."""
    try:
        imported = importlib.import_module(module)
    except ImportError:
        return None
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(distribution)
    return getattr(imported, "__version__", "unknown")


def has_rom(game: str) -> bool:
    from ale_py import roms

    try:
        return roms.get_rom_path(game) is not None
    except Exception:
        return False


def main() -> None:
    ale_py = version("ale_py", "ale-py")
    games = sys.argv[1:]
    missing = [game for game in games if ale_py is None or not has_rom(game)]
    report = {
        "version": platform.python_version(),
        "executable": sys.executable,
        "numpy": version("numpy", "numpy"),
        "gymnasium": version("gymnasium", "gymnasium"),
        "ale_py": ale_py,
        "roms": len(games) - len(missing),
        "missing_roms": missing,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
