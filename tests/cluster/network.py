"""Measures remote actors across two network namespaces, joined by a veth pair with 2 ms of delay.

The delay is `tc netem`'s. Where the kernel has none, a relay between the namespaces holds every packet back instead, and
the output says so. Needs root. Prints frames/s with local and with remote actors, in turns, and the bytes per agent step.
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
        return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError):
        return []


def measure(run: pathlib.Path, seconds: float) -> dict:
    """Waits until learning has begun, and measures from there."""
    deadline = time.monotonic() + 600
    while not (found := rows(run)) or not found[-1].get("speed/updates_per_second"):
        if time.monotonic() > deadline:
            raise SystemExit(f"error: {run} does not learn")
        time.sleep(0.5)
    time.sleep(5)
    first = rows(run)[-1]
    time.sleep(seconds)
    last = rows(run)[-1]
    time_between = last["speed/seconds"] - first["speed/seconds"]
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
    started = []
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
                address = f"10.99.0.2:{PORT}"
            text = ""
            while "--fingerprint" not in text:
                time.sleep(0.2)
                text = (directory / f"{name}.log").read_text()
                if started[0].poll() is not None:
                    raise SystemExit(f"error: {text}")
            fingerprint = text.split("--fingerprint ")[1].split()[0]
            start([MEME, "actors", "--connect", address, "--environments", str(remote), "--token-file", str(token),
                   "--fingerprint", fingerprint], ACTORS)
        else:
            start(command)
        try:
            return measure(directory / name, seconds)
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="cpu")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--environments", type=int, default=8)
    parser.add_argument("--games", default="pong,breakout,seaquest")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a setting of all runs")
    parser.add_argument("--relay", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.relay:
        asyncio.run(relay(0.002))
        return 0
    if os.geteuid() != 0 or not shutil.which("ip"):
        print("SKIPPED: network namespaces need root and `ip`, so remote actors are not measured", file=sys.stderr)
        return 0
    networks = Namespaces("2ms")
    if not networks.has_netem:
        print("SKIPPED: this kernel has no netem; a relay holds data back by 2 ms instead", file=sys.stderr)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="meme-network-"))
    try:
        first, *others = options.games.split(",")
        speeds = {"local": [], "remote": []}
        for turn in range(options.rounds):
            kinds = [("local", 0), ("remote", options.environments)]
            # Each comes first as often as the other, whatever else the machine does.
            for kind, remote in kinds if turn % 2 == 0 else reversed(kinds):
                found = train(first, options.preset, directory, f"{kind}-{turn}", options.seconds, remote, networks,
                              options.set)
                speeds[kind].append(found["frames_per_second"])
                print(f"{first} {kind} {turn}: {found}", flush=True)
        for game in others:
            print(game, train(game, options.preset, directory, game, options.seconds, options.environments, networks,
                              options.set))
        ratios = [remote / local for local, remote in zip(speeds["local"], speeds["remote"])]
        print(f"{first}: remote actors have {statistics.median(ratios):.1%} of the local frames/s (median of "
              f"{', '.join(f'{ratio:.1%}' for ratio in ratios)})")
    finally:
        networks.close()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
