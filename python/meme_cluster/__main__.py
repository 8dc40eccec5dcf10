"""Entry point of the driver, which `meme sweep --on ray` and `meme cluster train` start."""

import argparse
import signal
import sys


def main() -> int:
    parser = argparse.ArgumentParser(prog="meme_cluster", description=__doc__)
    parser.add_argument("--ray-address", help="address of a Ray cluster; without it, one is started on this machine")
    commands = parser.add_subparsers(dest="command", required=True)
    sweep = commands.add_parser("sweep", help="train the runs of a sweep")
    sweep.add_argument("--meme", required=True, help="the program")
    sweep.add_argument("--runs", required=True, help="directory that contains the runs")
    sweep.add_argument("--name", required=True, help="the sweep")
    sweep.add_argument("--id", required=True, help="its id")
    sweep.add_argument("--retries", type=int, default=2)
    sweep.add_argument("--cpus", type=float)
    sweep.add_argument("--gpus", type=float)
    sweep.add_argument("run", nargs="+", help="names of the runs to train")
    train = commands.add_parser("train", help="train one run with actors on several nodes")
    train.add_argument("--meme", required=True, help="the program")
    train.add_argument("--actors", required=True, help="NODESxENVIRONMENTS")
    train.add_argument("--cpus", type=float)
    train.add_argument("--gpus", type=float)
    train.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of `meme train`, after --")
    options = parser.parse_args()
    # `meme` blocks them in all of its threads but one, and a child inherits that.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        import ray
    except ImportError:
        print(f"error: {sys.executable} has no Ray; docs/cluster.md has the command that installs it", file=sys.stderr)
        return 1
    from . import sweep, train

    run = {"sweep": sweep.run, "train": train.run}[options.command]
    try:
        return run(options)
    except (ConnectionError, ray.exceptions.RayError) as error:
        print(f"error: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
