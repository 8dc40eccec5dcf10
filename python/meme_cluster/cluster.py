"""A connection to a Ray cluster, given or started."""

import os
import socket
import sys

import ray

import meme_cluster

# What a remote task or actor of this package needs travels with it: nodes need no copy of the package.
ray.cloudpickle.register_pickle_by_value(meme_cluster)


def _check(address: str) -> None:
    """Fails if nothing listens at HOST:PORT or ray://HOST:PORT; Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=15.0).close()
        except OSError as error:
            raise ConnectionError(f"no Ray cluster at {address}: {error.strerror or error}") from error


def connect(address: str | None) -> None:
    """Joins the cluster at the address, or starts one on this machine."""
    if address is not None:
        _check(address)
    for name in ("process", "sweep", "train", "cluster"):
        module = sys.modules.get(f"meme_cluster.{name}")
        if module is not None:
            ray.cloudpickle.register_pickle_by_value(module)
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    ray.init(address=address, log_to_driver=True, include_dashboard=False, configure_logging=False)


def demand(cpus: float | None, gpus: float | None) -> dict:
    """Returns what one run asks of a node: a GPU if the cluster has any, and some cores to feed it."""
    if gpus is None:
        gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
    if cpus is None:
        cpus = 4 if gpus else 1
    return {"num_cpus": cpus, "num_gpus": gpus}
