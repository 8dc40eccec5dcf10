"""`meme sweep --on ray`: one Ray task per run, restarted on another node when one dies."""

import os
import signal
import socket
import sys

import ray

from . import cluster, process

# Exit status of `meme sweep run` for a run that was told to stop.
INTERRUPTED = 75


def _train(command: list[str], name: str) -> tuple[int, str, str]:
    """Trains one run on this node; returns the exit status, the node and the last error."""
    node = socket.gethostname()
    child = process.start(command, stdout=sys.stderr, stderr=process.subprocess.PIPE, text=True)
    error = ""
    try:
        for line in child.stderr:
            if line.startswith("error: "):
                error = line.removeprefix("error: ").strip()
            print(f"{name}: {line}", end="", file=sys.stderr)
        return child.wait(), node, error
    except KeyboardInterrupt:
        return process.finish(child), node, error


def run(options) -> int:
    """Trains the runs, and returns the exit status of the command."""
    cluster.connect(options.ray_address)
    demand = cluster.demand(options.cpus, options.gpus)
    # Ray itself repeats a task whose node died; a failure of the program is counted here.
    task = ray.remote(**demand, max_retries=max(options.retries, 3))(_train)
    runs = os.path.abspath(options.runs)

    def start(name: str):
        command = [options.meme, "sweep", "run", options.name, name, "--id", options.id, "--runs", runs]
        return task.remote(command, name)

    pending = {start(name): name for name in options.run}
    attempts = dict.fromkeys(options.run, 1)
    failed: dict[str, str] = {}
    stopping = False

    def stop(*_) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            print("stopping; saving the runs first", file=sys.stderr)
            for reference in pending:
                ray.cancel(reference)

    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    while pending:
        done, _ = ray.wait(list(pending), timeout=1.0)
        for reference in done:
            name = pending.pop(reference)
            try:
                status, node, error = ray.get(reference)
            except (ray.exceptions.TaskCancelledError, KeyboardInterrupt):
                continue
            except ray.exceptions.RayError as lost:
                status, node, error = 1, "the cluster", str(lost).strip().splitlines()[0]
            if status == 0:
                print(f"{name} finished on {node}", file=sys.stderr)
            elif stopping or status == INTERRUPTED and attempts[name] > options.retries:
                continue
            elif attempts[name] <= options.retries:
                attempts[name] += 1
                why = error or "it was told to stop"
                print(f"warning: {name} failed on {node}, trying again: {why}", file=sys.stderr)
                pending[start(name)] = name
            else:
                failed[name] = f"on {node}: {error or f'exit status {status}'}"
    for name, why in failed.items():
        print(f"warning: {name} failed {why}", file=sys.stderr)
    ray.shutdown()
    return INTERRUPTED if stopping else int(bool(failed))
