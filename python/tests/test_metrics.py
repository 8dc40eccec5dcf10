"""Metrics as frames, and what trackers are sent."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import meme_rl
from meme_rl.metrics_frame import rows
from meme_rl.track import send, track

from commands import meme, runs


class Collected:
    """A tracker that keeps what it is sent."""

    def __init__(self):
        self.frames, self.videos = [], []

    def scalars(self, values, frames):
        assert values["frames"] == frames
        self.frames.append(frames)

    def video(self, path, frames):
        self.videos.append(path.name)

    def close(self):
        pass


class Metrics(unittest.TestCase):
    def setUp(self):
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.run_path = self.directory / "catch"
        shutil.copytree(runs() / "catch", self.run_path)

    def test_frame_has_a_row_per_measurement_of_every_run(self):
        shutil.copytree(self.run_path, self.directory / "second")
        frame = meme_rl.metrics(self.directory / "*")
        self.assertEqual(set(frame["run"]), {"catch", "second"})
        self.assertEqual(len(frame), 2 * len(list(rows(self.run_path))))
        for _, run in frame.groupby("run"):
            self.assertTrue(run["frames"].is_monotonic_increasing)
        same = meme_rl.metrics(self.directory / "*", "polars")
        self.assertEqual((same.height, set(same.columns)), (len(frame), set(frame.columns)))
        self.assertIn("actor/score", frame.columns)
        with self.assertRaisesRegex(meme_rl.RunError, "no run with metrics matches"):
            meme_rl.metrics(self.directory / "nothing*")

    def test_sends_every_row_once_even_if_the_run_repeats_some(self):
        sink, sent = Collected(), {"frames": -1, "videos": []}
        metrics = self.run_path / "metrics.jsonl"
        lines = metrics.read_text().splitlines(keepends=True)
        self.assertEqual(send(self.run_path, sink, sent), len(lines))
        self.assertEqual(send(self.run_path, sink, sent), 0)
        last = json.loads(lines[-1])
        # A resumed run writes its last row again, and a row that is not complete is not sent.
        with metrics.open("a") as file:
            file.write(lines[-1] + json.dumps(last | {"frames": last["frames"] + 5}) + "\n" + '{"frames":')
        self.assertEqual(send(self.run_path, sink, sent), 1)
        self.assertEqual(len(set(sink.frames)), len(sink.frames))
        self.assertEqual(len(sink.videos), 1)

    def test_tracks_to_tensorboard_and_resumes(self):
        options = ["--to", "tensorboard", "--runs", str(self.directory)]
        count = len(list(rows(self.run_path)))
        self.assertIn(f"sent {count} rows", meme("track", "catch", *options))
        self.assertIn("sent 0 rows", meme("track", "catch", "--follow", *options))
        self.assertTrue(list((self.run_path / "track" / "tensorboard").glob("events.*")))

    def test_says_which_package_is_missing(self):
        with (
            mock.patch.dict(sys.modules, trackio=None),
            self.assertRaisesRegex(meme_rl.RunError, "trackio is not installed .*; run `pip install trackio`"),
        ):
            track(self.run_path, "trackio")
        # TensorBoard's writer comes with torch.
        with (
            mock.patch.dict(sys.modules, {"torch.utils.tensorboard": None}),
            self.assertRaisesRegex(meme_rl.RunError, "torch is not installed .*; run `pip install torch`"),
        ):
            track(self.run_path, "tensorboard")
        with self.assertRaisesRegex(meme_rl.RunError, "has no metrics"):
            track(self.directory, "tensorboard")


if __name__ == "__main__":
    unittest.main()
