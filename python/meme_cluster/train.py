"""`meme cluster train`: the learner and its actors as Ray actors, each of which starts the program and restarts it."""

import re
import secrets
import signal
import subprocess
import sys
import threading
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from . import cluster, process

# Printed by `meme train --actors-listen`.
_ACCEPTING = re.compile(r"accepting actors: meme actors --connect \S+:(\d+)(?:.*--fingerprint ([0-9a-f]{64}))?")
# Printed by `meme train` while another process has the run.
_IN_USE = re.compile(r"error: the run in .* is in use by ")
# How long actors look for a learner before they ask where it is now.
_PATIENCE = "20"


def _replaces_a_lost_actor() -> bool:
    """Returns whether this Ray actor was started because its process or its node died."""
    return ray.get_runtime_context().was_current_actor_reconstructed


class LearnerProcess:
    """The learner: `meme train --actors-listen`, which says where actors reach it."""

    def __init__(self, command: list[str], token: str):
        self.host = ray.util.get_node_ip_address()
        listen = "127.0.0.1:0" if self.host == "127.0.0.1" else "0.0.0.0:0"
        self.command = [*command, "--actors-listen", listen]
        self.token = token
        self.port = self.fingerprint = None
        self.child = None
        self.is_in_use = False
        self.stopping = False

    def _read(self) -> None:
        for line in self.child.stderr:
            self.is_in_use = bool(_IN_USE.match(line))
            found = _ACCEPTING.search(line)
            if found:
                self.port, self.fingerprint = found.groups()
            print(f"learner: {line}", end="", flush=True)

    def run(self) -> int:
        """Trains to the end, starting the program again if it is killed; returns its exit status."""
        while True:
            self.port, self.is_in_use = None, False
            variables = {"MEME_ACTORS_TOKEN": self.token}
            self.child = process.start(self.command, variables, stderr=subprocess.PIPE, text=True)
            reader = threading.Thread(target=self._read)
            reader.start()
            status = self.child.wait()
            reader.join()
            if self.stopping:
                return status
            if status > 0 and self.is_in_use and _replaces_a_lost_actor():
                # The program of the lost actor still saves the run.
                time.sleep(1.0)
            elif status >= 0:
                # A status of its own is an answer; a signal from outside is not.
                return status
            else:
                print(f"learner: killed by signal {-status}; starting it again", flush=True)

    def address(self) -> tuple[str, str | None] | None:
        """Returns where actors reach it and the fingerprint of its certificate, once that is known."""
        return (f"{self.host}:{self.port}", self.fingerprint) if self.port else None

    def process_id(self) -> int | None:
        return self.child.pid if self.child else None

    def stop(self) -> int:
        """Saves the run and ends."""
        self.stopping = True
        return process.finish(self.child) if self.child else 0


class ActorsProcess:
    """Environments on one node: `meme actors`, started again whenever it ends before the run does."""

    def __init__(self, program: str, environments: int, token: str, learner, number: int):
        self.program, self.environments, self.token = program, environments, token
        self.learner, self.number = learner, number
        self.child = None
        self.stopping = False

    def run(self) -> None:
        while not self.stopping:
            address = ray.get(self.learner.address.remote())
            if address is None:
                time.sleep(0.5)
                continue
            connect, fingerprint = address
            command = [self.program, "actors", "--connect", connect, "--environments", str(self.environments)]
            command += ["--patience", _PATIENCE]
            if fingerprint:
                command += ["--fingerprint", fingerprint]
            variables = {"MEME_ACTORS_TOKEN": self.token}
            self.child = process.start(command, variables, stderr=subprocess.PIPE, text=True)
            for line in self.child.stderr:
                print(f"actors {self.number}: {line}", end="", flush=True)
            if self.child.wait() == 0:
                return
            time.sleep(0.5)

    def process_id(self) -> int | None:
        return self.child.pid if self.child else None

    def stop(self) -> None:
        self.stopping = True
        if self.child:
            process.finish(self.child, 10.0)


def _parse_actors(text: str) -> tuple[int, int]:
    """Returns the nodes and the environments per node of `--actors`."""
    found = re.fullmatch(r"([1-9]\d*)x([1-9]\d*)", text)
    if not found:
        raise SystemExit(f'error: invalid value "{text}" for --actors: expected NODESxENVIRONMENTS, such as 4x64')
    return int(found[1]), int(found[2])


class ClusterRun:
    """A learner and its actors on a cluster."""

    def __init__(self, options):
        nodes, environments = _parse_actors(options.actors)
        demand = cluster.demand(options.cpus, options.gpus)
        learner = {"CPU": demand["num_cpus"], "GPU": demand["num_gpus"]}
        bundles = [learner] + [{"CPU": 1}] * nodes
        self.group = placement_group(bundles, strategy="SPREAD")
        ready, _ = ray.wait([self.group.ready()], timeout=120)
        if not ready:
            raise SystemExit(f"error: the cluster has no room for {bundles}; it has {ray.cluster_resources()}")

        def on(bundle: int, **needs):
            strategy = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=bundle)
            # One thread runs the program; others answer questions about it meanwhile.
            return {"scheduling_strategy": strategy, "max_concurrency": 4, "max_restarts": -1,
                    "max_task_retries": -1, **needs}

        token = secrets.token_hex(24)
        arguments = [argument for argument in options.arguments if argument != "--"]
        capacity = ["--remote-environments", str(nodes * environments)]
        command = [options.meme, "train", *arguments, *capacity]
        self.learner = ray.remote(LearnerProcess).options(**on(0, **demand)).remote(command, token)
        self.actors = [
            ray.remote(ActorsProcess).options(**on(1 + number, num_cpus=1)).remote(
                options.meme, environments, token, self.learner, number)
            for number in range(nodes)
        ]
        self.training = self.learner.run.remote()
        self.playing = [actors.run.remote() for actors in self.actors]

    def stop(self) -> int:
        """Saves the run and ends everything."""
        status = ray.get(self.learner.stop.remote())
        self.close()
        return status

    def close(self) -> None:
        for actors in self.actors:
            actors.stop.remote()
        time.sleep(0.5)
        remove_placement_group(self.group)


def run(options) -> int:
    """Trains to the end or until a signal, and returns the learner's exit status."""
    _parse_actors(options.actors)
    cluster.connect(options.ray_address)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    training = ClusterRun(options)
    while not stopped.is_set():
        done, _ = ray.wait([training.training], timeout=0.5)
        if done:
            status = ray.get(training.training)
            training.close()
            ray.shutdown()
            return status
    print("stopping; saving the run first", file=sys.stderr)
    status = training.stop()
    ray.shutdown()
    return status
