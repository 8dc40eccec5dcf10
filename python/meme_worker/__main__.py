"""Entry point of a worker: `python meme_worker PARENT_PROCESS_ID`, with a socket as fd 0 and a memfd as fd 1."""

import os
import sys


def take_descriptors():
    """Moves socket and memory away from standard input and output, so that environments may use those."""
    connection, memory = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return connection, memory


def die_with(parent):
    """Lets the kernel kill this process when its parent dies, even if it is stuck in a step."""
    import ctypes
    import signal

    # A signal to all processes of a run is meant for the parent, which then closes its workers. The signals are caught
    # rather than ignored or blocked because programs that an environment starts would inherit that.
    for ending in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(
            f"meme_worker was started by process {os.getppid()}, expected {parent}: the parent has died or started it "
            "through a wrapper; configure the Python interpreter itself"
        )


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("meme starts meme_worker; it cannot be run by hand")
    connection, memory = take_descriptors()
    die_with(int(sys.argv[1]))
    # Python put the package's own directory first on the path. Its parent makes the package importable, and keeps our
    # modules from shadowing others of the same name.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        from meme_worker.worker import serve
    except ImportError as error:
        sys.exit(f"{sys.executable} cannot import the packages of a worker ({error}); run `meme doctor`")

    serve(connection, memory)


main()
