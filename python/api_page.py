#!/usr/bin/env python3
"""Prints docs/python_api.md from the docstrings of meme_rl: `.venv-python/bin/python python/api_page.py`."""

import inspect
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import meme_rl


def signature(thing):
    """The parameters as the source has them, without `self`."""
    text = str(inspect.signature(thing))
    # Long names of types that readers know by their last part.
    text = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text)
    return text.replace("(self, ", "(").replace("(self)", "()")


def paragraphs(thing):
    return inspect.cleandoc(inspect.getdoc(thing) or "").replace("    ", "    ")


def fields(cls):
    """The fields of a dataclass with the comments above them."""
    lines = inspect.getsource(cls).splitlines()
    rows = []
    for above, line in zip(lines, lines[1:]):
        found = re.match(r"    (\w+): ", line)
        if found and above.strip().startswith("#: "):
            rows.append(f"| `{found[1]}` | {above.strip().removeprefix('#: ')} |")
    return ["", "| field | |", "|---|---|", *rows] if rows else []


def main():
    print("# meme_rl\n")
    print("Generated from the docstrings by `python/api_page.py`. [python.md](python.md) shows how to use it.")
    for name in sorted(meme_rl.__all__, key=lambda name: (not name.islower(), name)):
        thing = getattr(meme_rl, name)
        print(f"\n## `{name}`\n")
        if inspect.isclass(thing):
            print(paragraphs(thing))
            for line in fields(thing):
                print(line)
            for member, method in inspect.getmembers(thing):
                own = member in vars(thing) and not member.startswith("_")
                if own and inspect.isfunction(method):
                    print(f"\n### `{name}.{member}{signature(method)}`\n\n{paragraphs(method)}")
                elif own and isinstance(method, property):
                    print(f"\n### `{name}.{member}`\n\n{paragraphs(method)}")
        else:
            print(f"`{name}{signature(thing)}`\n\n{paragraphs(thing)}")


if __name__ == "__main__":
    main()
