"""Metrics of runs as a data frame."""

import glob
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from .run import RunError


def rows(run: Path) -> Iterator[dict[str, Any]]:
    """Yields the rows of a run's metrics; a row that is still being written is left out."""
    with (run / "metrics.jsonl").open() as lines:
        for line in lines:
            if line.endswith("\n"):
                yield json.loads(line)


def metrics(runs: str | Path, frame: Literal["pandas", "polars"] = "pandas") -> Any:
    """Returns the metrics of all runs that a pattern such as `runs/*` matches, one row per measurement.

    The column `run` holds the run's name, the others are those of docs/metrics.md. The package of the frame, pandas or
    polars, is not installed with meme-rl.
    """
    found = [Path(path) for path in sorted(glob.glob(str(runs))) if (Path(path) / "metrics.jsonl").is_file()]
    if not found:
        raise RunError(f"no run with metrics matches {runs}")
    table = [{"run": run.name} | row for run in found for row in rows(run)]
    try:
        if frame == "polars":
            import polars

            return polars.DataFrame(table, infer_schema_length=None)
        import pandas

        return pandas.DataFrame(table)
    except ImportError as error:
        raise RunError(f"metrics as a frame need {frame} ({error}); run `pip install {frame}`") from error
