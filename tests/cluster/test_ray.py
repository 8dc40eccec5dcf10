"""Sweeps and training on a Ray cluster of three nodes on this machine. Slow: the cluster and every run are real."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEME = os.environ.get("MEME", str(ROOT / "target/release/meme"))
ALL = bool(os.environ.get("MEME_TEST_ALL"))
LONG = 600.0

try:
    from ray.cluster_utils import Cluster
except ImportError:
    Cluster = None
    print("SKIPPED: Ray is not installed, so nothing of tests/cluster is tested", file=sys.stderr)

SMALL = ["run.device=cpu", "run.threads=1", "actors.environments=4", "actors.environments_per_worker=4",
         "evaluation.evaluators=1", "replay.minimum_fill=20", "metrics.interval_seconds=0.2",
         "checkpoint.every_minutes=0.03"]


def settings(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


def children(pid: int) -> list[int]:
    """All processes below a process."""
    parents: dict[int, list[int]] = {}
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, waiting = [], [pid]
    while waiting:
        below = parents.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def command_line(pid: int) -> str:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def programs(pid: int, command: str) -> list[int]:
    """Processes below a process that run `meme COMMAND`."""
    return [below for below in children(pid) if re.search(rf"meme {command} ", command_line(below))]


@unittest.skipIf(Cluster is None, "Ray is not installed")
class RayTests(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="meme-ray-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
        self.addCleanup(self.cluster.shutdown)
        self.nodes = [self.cluster.add_node(num_cpus=2, num_gpus=0) for _ in range(2)]
        self.log = self.directory / "log"

    def start(self, *arguments: str) -> subprocess.Popen:
        variables = {**os.environ, "MEME_CLUSTER_PYTHON": sys.executable}
        with self.log.open("w") as log:
            process = subprocess.Popen([MEME, *arguments], env=variables, stdout=log, stderr=log)
        self.addCleanup(process.kill)
        return process

    def until(self, what: str, holds, process: subprocess.Popen):
        begun = time.monotonic()
        while not (found := holds()):
            ended = process.poll()
            self.assertIsNone(ended, f"it ended before {what}: {self.log.read_text()}")
            self.assertLess(time.monotonic() - begun, LONG, f"waited in vain until {what}: {self.log.read_text()}")
            time.sleep(0.1)
        return found

    def raylet(self, node) -> int:
        return node.all_processes["raylet"][0].process.pid

    def frames(self, run: pathlib.Path) -> int:
        try:
            return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["frames"]
        except (OSError, IndexError, ValueError):
            return 0

    def test_sweep_finishes_although_a_node_dies(self):
        frames = 6000 if ALL else 3000
        process = self.start("sweep", "four", "--games", "catch", "--seeds", "1-4", "--preset", "tiny", "--on", "ray",
                             "--ray-address", self.cluster.address, "--runs", str(self.directory), "--frames",
                             str(frames), *settings(SMALL))
        runs = [self.directory / "four" / f"catch-{seed}" for seed in range(1, 5)]
        # Half-way: a node with a run that has a checkpoint dies, with everything on it.
        def victim():
            for node in self.nodes:
                for program in programs(self.raylet(node), "train"):
                    run = re.search(r"--name (\S+)", command_line(program))
                    if run and any(path.name.isdigit() for path in (self.directory / "four" / run[1] / "checkpoints").glob("*")):
                        return node, self.directory / "four" / run[1]
            return None
        node, run = self.until("a node has saved a run", victim, process)
        below = children(self.raylet(node))
        for pid in below:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        played = self.frames(run)
        self.cluster.remove_node(node, allow_graceful=False)
        self.assertEqual(process.wait(LONG), 0, self.log.read_text())
        for run_directory in runs:
            self.assertGreaterEqual(self.frames(run_directory), frames)
        log = (self.directory / "four/logs" / f"{run.name}.log").read_text()
        resumed = [int(found) for found in re.findall(r"resuming from (\d+) frames", log)]
        self.assertTrue(resumed, log)
        # Nothing is lost but the interval since the last checkpoint.
        self.assertGreater(max(resumed), 0)
        self.assertLessEqual(min(resumed), played + 400)
        status = subprocess.run([MEME, "sweep", "status", "four", "--json", "--runs", str(self.directory)],
                                capture_output=True, text=True, check=True)
        states = [found["state"] for found in json.loads(status.stdout)["runs"]]
        self.assertEqual(states, ["finished"] * 4)

    def test_training_survives_a_killed_actor(self):
        frames, wanted = (60_000, 0.95) if ALL else (30_000, 0.95)
        process = self.start("cluster", "train", "--actors", "2x8", "--ray-address", self.cluster.address, "catch",
                             "--preset", "tiny", "--runs", str(self.directory), "--name", "ray", "--frames",
                             str(frames), "--set", "run.device=cpu")
        run = self.directory / "ray"
        def playing():
            return [pid for node in [self.cluster.head_node, *self.nodes] for pid in programs(self.raylet(node), "actors")]
        def remote():
            try:
                return json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["remote/environments"] == 16
            except (OSError, IndexError, ValueError, KeyError):
                return False
        self.until("all actors play", remote, process)
        victim = playing()[0]
        os.kill(victim, signal.SIGKILL)
        self.until("it is replaced", lambda: len(playing()) == 2 and victim not in playing(), process)
        self.until("the new one plays", remote, process)
        self.assertEqual(process.wait(LONG), 0, self.log.read_text())
        rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.assertGreaterEqual(rows[-1]["frames"], frames)
        self.assertGreater(rows[-1]["remote/steps"], 1000)
        scores = [row["evaluation/score"] for row in rows if row.get("evaluation/score") is not None]
        self.assertGreaterEqual(max(scores), wanted, f"{scores[-20:]}")

    def test_interrupt_saves_the_run(self):
        process = self.start("cluster", "train", "--actors", "1x2", "--ray-address", self.cluster.address, "catch",
                             "--preset", "tiny", "--runs", str(self.directory), "--name", "ray", *settings(SMALL))
        run = self.directory / "ray"
        self.until("it plays", lambda: self.frames(run) > 500, process)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(LONG), 0, self.log.read_text())
        saved = [int(path.name) for path in (run / "checkpoints").glob("*") if path.name.isdigit()]
        self.assertGreaterEqual(max(saved), self.frames(run))


@unittest.skipIf(Cluster is None, "Ray is not installed")
class LearnerTests(unittest.TestCase):
    def statuses(self, replaces_a_lost_actor: bool) -> tuple[int, int]:
        """Runs a program that finds its run in use at first; returns its last status and how often it was started."""
        from meme_cluster import train

        with tempfile.TemporaryDirectory() as directory:
            started = pathlib.Path(directory, "started")
            program = pathlib.Path(directory, "program")
            program.write_text(f"""#!/bin/sh
echo >> {started}
if [ "$(wc -l < {started})" -gt 2 ]; then exit 0; fi
echo "error: the run in {directory} is in use by process 1 on here" >&2
exit 1
""")
            program.chmod(0o700)
            with (mock.patch.object(train, "_replaces_a_lost_actor", return_value=replaces_a_lost_actor),
                  mock.patch.object(train.ray.util, "get_node_ip_address", return_value="127.0.0.1")):
                status = train.LearnerProcess([str(program)], "token").run()
            return status, len(started.read_text().splitlines())

    def test_replaced_learner_waits_until_the_lost_one_has_saved_the_run(self):
        self.assertEqual(self.statuses(replaces_a_lost_actor=True), (0, 3))

    def test_run_that_another_process_has_is_an_error(self):
        self.assertEqual(self.statuses(replaces_a_lost_actor=False), (1, 1))


@unittest.skipIf(Cluster is None, "Ray is not installed")
class AddressTests(unittest.TestCase):
    def error(self, python: str, address: str) -> str:
        """Returns the last line of a command that must fail, in a directory that has a directory `ray`."""
        command = [MEME, "cluster", "train", "--actors", "1x2", "--ray-address", address, "catch", "--preset", "tiny"]
        variables = {**os.environ, "MEME_CLUSTER_PYTHON": python}
        with tempfile.TemporaryDirectory() as directory:
            pathlib.Path(directory, "ray").mkdir()
            ended = subprocess.run(command, env=variables, cwd=directory, capture_output=True, text=True)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        return ended.stderr.splitlines()[-1]

    def test_absent_cluster_is_an_error_at_once(self):
        with socket.socket() as taken:
            # Nothing listens there.
            taken.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{taken.getsockname()[1]}"
            self.assertEqual(self.error(sys.executable, address),
                             f"error: no Ray cluster at {address}: Connection refused")

    def test_python_without_ray_is_named(self):
        python = os.environ.get("MEME_PYTHON", str(ROOT / ".venv/bin/python"))
        self.assertEqual(self.error(python, "auto"),
                         f"error: {python} has no Ray; docs/cluster.md has the command that installs it")


class KubeRayTests(unittest.TestCase):
    def test_documented_cluster_is_valid_yaml(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("PyYAML is not installed")
        job = yaml.safe_load((ROOT / "docs/kuberay.yaml").read_text())
        self.assertEqual((job["apiVersion"], job["kind"]), ("ray.io/v1", "RayJob"))
        spec = job["spec"]["rayClusterSpec"]
        requirement = (ROOT / "python/requirements/cluster.txt").read_text()
        self.assertIn(f"ray=={spec['rayVersion']}", requirement)
        words = job["spec"]["entrypoint"].split()
        nodes, environments = words[words.index("--actors") + 1].split("x")
        self.assertEqual(int(nodes), spec["workerGroupSpecs"][0]["replicas"])
        self.assertGreater(int(environments), 0)
        for group in [spec["headGroupSpec"], *spec["workerGroupSpecs"]]:
            pod = group["template"]["spec"]
            mounts = {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]}
            self.assertEqual(mounts, {volume["name"] for volume in pod["volumes"]})
        # The command is one that this program understands.
        checked = subprocess.run([MEME, "train", *words[words.index("auto") + 1:], "--help"], capture_output=True)
        self.assertEqual(checked.returncode, 0, checked.stderr)


if __name__ == "__main__":
    unittest.main()
