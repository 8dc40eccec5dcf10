"""Started by the Rust side: `python meme_worker PARENT_PROCESS_ID`, with a socket as fd 0 and a memfd as fd 1."""

import os
import sys


def take_descriptors():
    """Moves socket and memory out of the way of anything that reads standard input or prints."""
    connection, memory = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return connection, memory


def die_with(parent):
    """Has the kernel kill this process when its parent dies, even while it is stuck in a step."""
    import ctypes
    import signal

    # Whoever ends a whole run with a signal to all its processes means the parent, which then tells us to close. They
    # are caught and neither ignored nor, as the parent has them, blocked: what an environment starts would inherit that.
    for ending in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(
            f"meme_worker was started by process {os.getppid()} and not by {parent}, which is gone or has started it "
            "through a wrapper: name the Python interpreter itself"
        )


def main():
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("meme_worker is started by meme, not by hand")
    connection, memory = take_descriptors()
    die_with(int(sys.argv[1]))
    # Python put the package's own folder first; its parent is what makes it importable, and modules that happen to be
    # called like ours or like one of Python's do not get in the way.
    sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        from meme_worker.worker import serve
    except ImportError as error:
        sys.exit(f"{sys.executable} can't import what a worker needs ({error}); `meme doctor` says what is missing")

    serve(connection, memory)


main()
