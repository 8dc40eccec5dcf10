"""Files of a run that playing needs: its config, and the weights and numbers of a checkpoint."""

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: A checkpoint: the one with the best evaluation, the newest, or the one with this frame count.
Selector = str | int


class RunError(Exception):
    """A run or checkpoint that cannot be used; the text says why."""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint of a run, opened for playing."""

    run: Path
    path: Path
    #: The environment that the agent was trained in, as users type it: `pong`, `gym:CartPole-v1`.
    task: str
    seed: int
    config: dict[str, Any]
    #: Emulator frames that training had played.
    frames: int
    #: Mean score of the evaluation that made it the best checkpoint.
    score: float | None
    #: The contents of `agent.json`.
    agent: dict[str, Any]

    @property
    def weights(self) -> Path:
        """The file of the parameters."""
        return self.path / "weights.safetensors"


def open_checkpoint(run: str | Path, selector: Selector = "last") -> Checkpoint:
    """Opens a checkpoint of the run in this directory."""
    run = Path(run)
    if not (run / "run.json").is_file():
        what = "it has no run.json" if run.is_dir() else "no such directory; a run's directory is like runs/pong"
        raise RunError(f"{run} is not a run: {what}")
    path = _find(run, selector)
    manifest, agent = _json(path / "manifest.json"), _json(path / "agent.json")
    try:
        config = tomllib.loads((run / "config.toml").read_text())
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise RunError(f"{run / 'config.toml'} cannot be read: {error}") from error
    known = _json(run / "run.json")
    return Checkpoint(run, path, known["task"], known["seed"], config, manifest["frames"], manifest.get("score"), agent)


def _find(run: Path, selector: Selector) -> Path:
    checkpoints = run / "checkpoints"
    numbered = sorted(path for path in checkpoints.glob("*") if path.name.isdigit())
    if selector == "last":
        if not numbered:
            raise RunError(f"{run} has no checkpoint yet")
        return numbered[-1]
    if selector == "best":
        if not (checkpoints / "best").is_dir():
            raise RunError(f"{run} has no best checkpoint: no evaluation has been completed")
        return checkpoints / "best"
    if isinstance(selector, int):
        for path in numbered:
            if int(path.name) == selector:
                return path
        frames = ", ".join(str(int(path.name)) for path in numbered)
        raise RunError(f"{run} has no checkpoint at {selector} frames; it has {frames or 'none'}")
    raise RunError(f"expected best, last or a number of frames as the checkpoint, got {selector!r}")


def _json(path: Path) -> dict[str, Any]:
    try:
        contents = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} cannot be read: {error}") from error
    if not isinstance(contents, dict):
        raise RunError(f"{path} is not a JSON object")
    return contents
