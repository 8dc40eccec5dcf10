"""A child process that ends with its parent and is told to save itself."""

import ctypes
import os
import signal
import subprocess

_PR_SET_PDEATHSIG = 1


def start(command: list[str], environment: dict[str, str] | None = None, **options) -> subprocess.Popen:
    """Starts a program. If the worker process dies, the program gets SIGTERM, saves itself and ends."""
    parent = os.getpid()

    def bind() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(1)

    variables = {**os.environ, **(environment or {})}
    # In a session of its own: a Ctrl-C at the driver's terminal must not reach it twice.
    return subprocess.Popen(command, env=variables, preexec_fn=bind, start_new_session=True, **options)


def finish(child: subprocess.Popen, patience: float = 120.0) -> int:
    """Asks a program to save itself, and waits for that."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(patience)
        except subprocess.TimeoutExpired:
            child.kill()
    return child.wait()
