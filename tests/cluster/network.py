"""Measures remote actors across two network namespaces, joined by a veth pair with 2 ms of delay.

The delay is `tc netem`'s. Where the kernel has none, a relay between the namespaces holds all data back instead, and the
comparison with local actors is printed but counts as skipped. Needs root. Prints frames/s with local and with remote
actors, in turns, the bytes per agent step and, with the relay, the cores that it occupies.
"""

import argparse
import asyncio
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import unittest

import run_tests

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEME = os.environ.get("MEME", str(ROOT / "target/release/meme"))
PORT = 7799
LEARNER, ACTORS = "meme-learner", "meme-actors"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Namespaces:
    """Two namespaces and the pair that joins them."""

    def __init__(self, delay: str):
        for name in (LEARNER, ACTORS):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
            ip("netns", "add", name)
        ip("link", "add", "meme0", "netns", LEARNER, "type", "veth", "peer", "name", "meme1", "netns", ACTORS)
        self.has_netem = True
        for name, device, address in ((LEARNER, "meme0", "10.99.0.1/24"), (ACTORS, "meme1", "10.99.0.2/24")):
            ip("-n", name, "addr", "add", address, "dev", device)
            for each in (device, "lo"):
                ip("-n", name, "link", "set", each, "up")
            netem = ["ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", device, "root", "netem", "delay", delay]
            self.has_netem &= subprocess.run(netem, capture_output=True).returncode == 0

    def close(self) -> None:
        for name in (LEARNER, ACTORS):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


async def hold_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 16):
        loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)


async def relay(delay: float) -> None:
    """Forwards connections to the learner, every byte `delay` seconds later, in both directions."""

    async def accept(reader, writer):
        there, back = await asyncio.open_connection("10.99.0.1", PORT)
        await asyncio.gather(hold_back(reader, back, delay), hold_back(there, writer, delay))

    async with await asyncio.start_server(accept, "10.99.0.2", PORT) as server:
        await server.serve_forever()


def rows(run: pathlib.Path) -> list[dict]:
    try:
        text = (run / "metrics.jsonl").read_text()
    except OSError:
        return []
    # The last line may be in the middle of being written.
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def cores(process: subprocess.Popen, since: float) -> float:
    """The processor time of a process per second since it was started."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") / (time.monotonic() - since)


def measure(run: pathlib.Path, seconds: float) -> dict:
    """Waits until learning has begun, and measures from there."""
    deadline = time.monotonic() + 600
    while not (found := rows(run)) or not found[-1].get("speed/updates_per_second"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{run} does not learn")
        time.sleep(0.5)
    time.sleep(5)
    first = rows(run)[-1]
    while (time_between := (last := rows(run)[-1])["speed/seconds"] - first["speed/seconds"]) < seconds:
        if time.monotonic() > deadline + seconds:
            raise TimeoutError(f"{run} stands still")
        time.sleep(0.5)
    result = {"frames_per_second": (last["frames"] - first["frames"]) / time_between}
    if steps := last.get("remote/steps", 0) - first.get("remote/steps", 0):
        result["bytes_per_step"] = (last["remote/megabytes"] - first["remote/megabytes"]) * 1e6 / steps
    return result


def train(game: str, preset: str, directory: pathlib.Path, name: str, seconds: float, remote: int, networks,
          settings: list[str]) -> dict:
    """Trains for a while with local actors, or with all actors behind the network."""
    # With the preset's slack, actors run up to 1 700 frames ahead of the learner or behind it, as many as a measurement
    # of 20 s has; the speed over time does not depend on it.
    # A round of evaluation takes about 10 s of 40, so it would slow down one measurement and not another: only the first
    # round, before the measurement, is played.
    command = [MEME, "train", game, "--preset", preset, "--runs", str(directory), "--name", name,
               "--set", "metrics.interval_seconds=1", "--set", "replay.minimum_fill=50",
               "--set", "replay.limiter_slack=32", "--set", "evaluation.share=0.001"]
    command += [word for setting in settings for word in ("--set", setting)]
    started, relayed = [], None
    with open(directory / f"{name}.log", "w") as log:
        def start(words: list[str], namespace: str | None = None):
            words = ["ip", "netns", "exec", namespace, *words] if namespace else words
            started.append(subprocess.Popen(words, stdout=log, stderr=log))

        if remote:
            command += ["--set", "actors.environments=0", "--actors-listen", f"10.99.0.1:{PORT}",
                        "--remote-environments", str(remote)]
            start(command, LEARNER)
            token = directory / name / "remote/token"
            address = f"10.99.0.1:{PORT}"
            if not networks.has_netem:
                start([sys.executable, __file__, "--relay"], ACTORS)
                relayed = started[-1], time.monotonic()
                address = f"10.99.0.2:{PORT}"
            text = ""
            while "--fingerprint" not in text:
                time.sleep(0.2)
                text = (directory / f"{name}.log").read_text()
                if started[0].poll() is not None:
                    raise RuntimeError(text)
            fingerprint = text.split("--fingerprint ")[1].split()[0]
            start([MEME, "actors", "--connect", address, "--environments", str(remote), "--token-file", str(token),
                   "--fingerprint", fingerprint], ACTORS)
        else:
            start(command)
        try:
            found = measure(directory / name, seconds)
            return found | ({"relay_cores": cores(*relayed)} if relayed else {})
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


class NetworkTests(unittest.TestCase):
    """Remote actors behind the network."""

    options: argparse.Namespace

    def setUp(self):
        if os.geteuid() != 0 or not shutil.which("ip"):
            self.skipTest("network namespaces need root and `ip`")
        try:
            self.networks = Namespaces("2ms")
        except subprocess.CalledProcessError as error:
            self.skipTest(f"no network namespaces here: {error.stderr.decode().strip()}")
        self.addCleanup(self.networks.close)
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="meme-network-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def train(self, game: str, name: str, remote: int) -> dict:
        options = self.options
        found = train(game, options.preset, self.directory, name, options.seconds, remote, self.networks, options.set)
        print(f"{name}: {found}", flush=True)
        return found

    def test_agent_step_takes_at_most_1_kb(self):
        for game in self.options.games.split(","):
            with self.subTest(game):
                self.assertLessEqual(self.train(game, game, self.options.environments)["bytes_per_step"], 1000)

    def test_remote_actors_have_90_percent_of_the_local_speed(self):
        speeds = {"local": [], "remote": []}
        for turn in range(self.options.rounds):
            kinds = [("local", 0), ("remote", self.options.environments)]
            # Each comes first as often as the other, whatever else the machine does.
            for kind, remote in kinds if turn % 2 == 0 else reversed(kinds):
                speeds[kind].append(self.train("pong", f"{kind}-{turn}", remote)["frames_per_second"])
        ratios = [remote / local for local, remote in zip(speeds["local"], speeds["remote"])]
        median = statistics.median(ratios)
        found = f"{median:.1%} (median of {', '.join(f'{ratio:.1%}' for ratio in ratios)})"
        print(f"remote actors have {found} of the local frames/s")
        if not self.networks.has_netem:
            self.skipTest(f"this kernel has no netem; with a relay that holds data back by 2 ms it was {found}")
        self.assertGreaterEqual(median, 0.9, found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--games", default="pong,breakout,seaquest")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a setting of all runs")
    parser.add_argument("--relay", action="store_true", help=argparse.SUPPRESS)
    NetworkTests.options = parser.parse_args()
    if NetworkTests.options.relay:
        asyncio.run(relay(0.002))
        return 0
    tests = unittest.defaultTestLoader.loadTestsFromTestCase(NetworkTests)
    return int(not run_tests.run(tests).wasSuccessful())


if __name__ == "__main__":
    sys.exit(main())
