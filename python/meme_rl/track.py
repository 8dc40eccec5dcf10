"""Sends a run's metrics, config and videos to a tracker of experiments: `meme track RUN --to wandb`.

Training does not know of it: the tracker reads what the run has written, during the run or afterwards. What was sent is
recorded in `track/` in the run's directory, so that the next call continues where this one ended.
"""

import argparse
import fcntl
import importlib
import json
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from .metrics_frame import rows
from .run import RunError

#: Seconds between two looks at a run that is followed.
INTERVAL = 5.0


class Sink(Protocol):
    """Where a run is sent to."""

    def scalars(self, values: dict[str, float], frames: int) -> None:
        """Sends one row of metrics."""

    def video(self, path: Path, frames: int) -> None:
        """Sends a video."""

    def close(self) -> None:
        """Waits until everything is sent."""


class TensorboardSink:
    """TensorBoard files with the config as text, in `track/tensorboard`."""

    def __init__(self, run: Path, config: dict[str, Any]) -> None:
        module = importlib.import_module("torch.utils.tensorboard")
        self.writer: Any = module.SummaryWriter(str(run / "track" / "tensorboard"))
        text = "\n".join(f"    {name} = {value}" for name, value in flat(config).items())
        self.writer.add_text("config", text)

    def scalars(self, values: dict[str, float], frames: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, frames)

    def video(self, path: Path, frames: int) -> None:
        # TensorBoard shows images, not files; the path leads to the video.
        self.writer.add_text("video", str(path), frames)

    def close(self) -> None:
        self.writer.close()


class WandbSink:
    """Weights & Biases."""

    def __init__(self, run: Path, project: str, config: dict[str, Any], id: str, offline: bool) -> None:
        self.module: Any = importlib.import_module("wandb")
        self.run = self.module.init(
            project=project,
            name=run.name,
            id=id,
            resume="allow",
            config=config,
            dir=str(run),
            mode="offline" if offline else None,
            # They would describe this process, not the training.
            settings=self.module.Settings(x_disable_stats=True),
        )

    def scalars(self, values: dict[str, float], frames: int) -> None:
        self.run.log(values, step=frames)

    def video(self, path: Path, frames: int) -> None:
        # A resumed run begins after its last step and drops what is logged before.
        self.run.log({"video": self.module.Video(str(path))}, step=max(frames, self.run.step))

    def close(self) -> None:
        self.run.finish()


class TrackioSink:
    """trackio, which always writes to this machine."""

    def __init__(self, run: Path, project: str, config: dict[str, Any]) -> None:
        self.module: Any = importlib.import_module("trackio")
        self.run = self.module.init(
            project=project,
            name=run.name,
            resume="allow",
            config=flat(config),
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def scalars(self, values: dict[str, float], frames: int) -> None:
        self.run.log(values, step=frames)

    def video(self, path: Path, frames: int) -> None:
        self.run.log({"video": self.module.Video(str(path))}, step=frames)

    def close(self) -> None:
        self.module.finish()


class MlflowSink:
    """MLflow, offline in `track` in the run's directory, otherwise where MLflow is configured to store runs."""

    def __init__(self, run: Path, project: str, config: dict[str, Any], known: str | None, offline: bool) -> None:
        self.mlflow: Any = importlib.import_module("mlflow")
        if offline:
            directory = (run / "track").resolve()
            self.mlflow.set_tracking_uri(f"sqlite:///{directory / 'mlflow.db'}")
            # By default, files would go to the working directory.
            if self.mlflow.get_experiment_by_name(project) is None:
                self.mlflow.create_experiment(project, artifact_location=(directory / "mlflow").as_uri())
        self.mlflow.set_experiment(project)
        self.run = self.mlflow.start_run(run_id=known, run_name=run.name)
        if known is None:
            self.mlflow.log_params(flat(config))

    def scalars(self, values: dict[str, float], frames: int) -> None:
        self.mlflow.log_metrics(values, step=frames)

    def video(self, path: Path, frames: int) -> None:
        self.mlflow.log_artifact(str(path), "videos")

    def close(self) -> None:
        self.mlflow.end_run()


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The fields of a config by their dotted names."""
    fields: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, dict):
            fields |= flat(value, f"{prefix}{name}.")
        else:
            fields[prefix + name] = value
    return fields


def open_sink(tracker: str, run: Path, project: str, sent: dict[str, Any], offline: bool) -> Sink:
    """Opens the tracker; `sent` is what earlier calls have recorded."""
    config = tomllib.loads((run / "config.toml").read_text())
    try:
        if tracker == "tensorboard":
            return TensorboardSink(run, config)
        if tracker == "mlflow":
            sink = MlflowSink(run, project, config, sent.get("id"), offline)
            sent["id"] = sink.run.info.run_id
            return sink
        if tracker == "trackio":
            return TrackioSink(run, project, config)
        created = json.loads((run / "run.json").read_text())["created_unix"]
        return WandbSink(run, project, config, f"{run.name}-{created}", offline)
    except ImportError as error:
        package = (error.name or tracker).partition(".")[0]
        raise RunError(f"{package} is not installed ({error}); run `pip install {package}`") from error
    except Exception as error:  # Each tracker has exceptions of its own, for instance without a login.
        raise RunError(f"{tracker} cannot be opened: {error}") from error


def new_rows(run: Path, sent: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the rows that are not sent yet.

    A row is new if it has more frames than the last one: a run that resumed from a checkpoint repeats some.
    """
    return (row for row in rows(run) if row["frames"] > sent["frames"])


def new_videos(run: Path, sent: dict[str, Any]) -> list[Path]:
    """Returns the videos that are not sent yet."""
    videos = sorted((run / "videos").glob("*"))
    return [path for path in videos if path.suffix in (".gif", ".mp4") and path.name not in sent["videos"]]


def send(run: Path, sink: Sink, sent: dict[str, Any]) -> int:
    """Sends rows and videos that are not sent yet, and returns the number of rows."""
    count = 0
    for row in new_rows(run, sent):
        frames = int(row["frames"])
        sink.scalars({name: float(value) for name, value in row.items() if isinstance(value, (int, float))}, frames)
        sent["frames"] = frames
        count += 1
    for path in new_videos(run, sent):
        sink.video(path, sent["frames"])
        sent["videos"].append(path.name)
    return count


def is_training(run: Path) -> bool:
    """Whether a process trains the run: it holds the lock."""
    try:
        with (run / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def track(run: Path, tracker: str, project: str = "meme", follow: bool = False, offline: bool = False) -> int:
    """Sends what is not sent yet, until the run ends if it is followed; returns the number of rows."""
    if not (run / "metrics.jsonl").is_file():
        raise RunError(f"{run} has no metrics")
    record = run / "track" / f"{tracker}.json"
    sent: dict[str, Any] = {"frames": -1, "videos": []}
    if record.is_file():
        sent = json.loads(record.read_text())
    # Opening would leave an empty run at some trackers.
    if not follow and next(new_rows(run, sent), None) is None and not new_videos(run, sent):
        return 0
    record.parent.mkdir(exist_ok=True)
    sink = open_sink(tracker, run, project, sent, offline)
    count = 0
    try:
        while True:
            training = follow and is_training(run)
            count += send(run, sink, sent)
            partial = record.with_suffix(".tmp")
            partial.write_text(json.dumps(sent))
            partial.replace(record)
            if not training:
                return count
            time.sleep(INTERVAL)
    finally:
        sink.close()


def main(arguments: list[str] | None = None) -> None:
    """Tracks from the command line."""
    parser = argparse.ArgumentParser(prog="meme track", description="Send a run to a tracker of experiments")
    parser.add_argument("run", type=Path)
    parser.add_argument("--to", choices=("wandb", "trackio", "mlflow", "tensorboard"), required=True)
    parser.add_argument("--project", default="meme")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--offline", action="store_true")
    given = parser.parse_args(arguments)
    try:
        count = track(given.run, given.to, given.project, given.follow, given.offline)
    except (RunError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    print(f"sent {count} rows of {given.run} to {given.to}")
