"""What trackers hold after several calls of `meme track`. A tracker whose package is missing is skipped."""

import importlib.util
import json
import shutil
import sqlite3
import tempfile
import unittest
from pathlib import Path

from meme_rl.metrics_frame import rows

from commands import ended, runs


def requires(package):
    """Skips a test, with a line that names the package, where it is not installed."""
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"SKIPPED: tracking to {package}, which is not installed")
    return unittest.skipUnless(found, f"{package} is not installed")


class Track(unittest.TestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.run_path = self.directory / "catch"
        shutil.copytree(runs() / "catch", self.run_path)

    def track(self, tracker, count):
        options = ["--to", tracker, "--offline", "--runs", str(self.directory)]
        done = ended("track", "catch", *options, HOME=str(self.directory), TRACKIO_DIR=str(self.directory / "trackio"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"sent {count} rows", done.stdout)

    def track_three_times(self, tracker):
        """Sends the run, then nothing, then a new row and a new video; returns the frames of all rows."""
        frames = [row["frames"] for row in rows(self.run_path)]
        self.track(tracker, len(frames))
        self.track(tracker, 0)
        last = list(rows(self.run_path))[-1]
        with (self.run_path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(last | {"frames": frames[-1] + 5}) + "\n")
        [video] = (self.run_path / "videos").glob("*.gif")
        shutil.copy(video, video.with_name("second.gif"))
        self.track(tracker, 1)
        return [*frames, frames[-1] + 5]

    @requires("wandb")
    def test_wandb_gets_every_video_once_and_no_empty_run(self):
        self.track_three_times("wandb")
        self.assertEqual(len(list(self.run_path.glob("wandb/offline-run-*/*.wandb"))), 2)
        self.assertEqual(len(list(self.run_path.glob("wandb/offline-run-*/files/media/**/*.gif"))), 2)

    @requires("trackio")
    def test_trackio_holds_every_row_and_video_once(self):
        frames = self.track_three_times("trackio")
        database = sqlite3.connect(self.directory / "trackio" / "meme.db")
        self.addCleanup(database.close)
        logged = [(step, json.loads(values)) for step, values in database.execute("select step, metrics from metrics")]
        self.assertEqual(sorted(step for step, values in logged if "frames" in values), frames)
        self.assertEqual(sum("video" in values for _, values in logged), 2)

    @requires("mlflow")
    def test_mlflow_holds_every_row_and_video_once(self):
        from mlflow import MlflowClient

        frames = self.track_three_times("mlflow")
        client = MlflowClient(f"sqlite:///{self.run_path / 'track' / 'mlflow.db'}")
        [run] = client.search_runs([client.get_experiment_by_name("meme").experiment_id])
        self.assertEqual([metric.step for metric in client.get_metric_history(run.info.run_id, "frames")], frames)
        self.assertEqual(len(client.list_artifacts(run.info.run_id, "videos")), 2)
        self.assertEqual(len(list(self.run_path.glob("track/mlflow/**/*.gif"))), 2, "files are in the run's directory")


if __name__ == "__main__":
    unittest.main()
