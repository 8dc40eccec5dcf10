"""Commands of `meme` that are written in Python: `python -m meme_rl.commands export ...`."""

import importlib
import sys

#: The module of each command.
COMMANDS = {"export": "export", "track": "track"}


def main() -> None:
    """Runs the command that the first argument names."""
    command, *arguments = sys.argv[1:]
    try:
        module = importlib.import_module(f".{COMMANDS[command]}", __package__)
    except ImportError as error:
        sys.exit(
            f"error: {sys.executable} cannot import what `meme {command}` needs ({error}); install the wheel meme-rl, or "
            "set MEME_PYTHON to a Python that has torch and safetensors"
        )
    module.main(arguments)


if __name__ == "__main__":
    main()
