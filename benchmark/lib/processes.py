"""Child processes: started so that they cannot outlive us, counted with their children, stopped by their ids."""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import time

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_alive = []


def end_in_order():
    """SIGINT and SIGTERM raise KeyboardInterrupt, once: a second one does not disturb the cleaning up.

    Also where SIGINT was ignored, as in a script's background.
    """

    def interrupt(*_):
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupt)


def start(command, place, **how):
    """Starts `command` after `place()` has put the new process where it belongs.

    It gets a session of its own, so that Ctrl-C reaches us alone and we stop it in order; if we are killed, it is told.
    """

    def prepare():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        place()

    process = subprocess.Popen([str(word) for word in command], preexec_fn=prepare, start_new_session=True, **how)
    _alive.append(process)
    return process


def stop(process, seconds=5):
    """Ends the process and all it has started: asked first, killed after `seconds`."""
    family = tree(process.pid)
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
    for pid in family:
        if pid != process.pid and not _ends(pid, 2):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if process.poll() is None:
        process.kill()
        process.wait()
    with contextlib.suppress(ValueError):
        _alive.remove(process)


def stop_all():
    for process in list(_alive):
        stop(process)


def _ends(pid, seconds):
    end = time.monotonic() + seconds
    while _parent(pid) is not None:
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def _parent(pid):
    """None when there is no such process any more, or only its remains."""
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[1])


def tree(root):
    """The process and all that descend from it."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = _parent(int(entry))
            if parent is not None:
                children.setdefault(parent, []).append(int(entry))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return sorted(found)


def cpu_seconds(pids):
    """Time on a CPU of all threads of these processes, from the scheduler: nanoseconds, not ticks."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(OSError):
                    total += int(pathlib.Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
    return total / 1e9


def memory(pids):
    """KiB that only these processes have (`private`), their share of what is shared as well (`pss`), and `rss`."""
    total = {"private": 0, "pss": 0, "rss": 0}
    for pid in pids:
        with contextlib.suppress(OSError):
            text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
            sizes = {name: int(size) for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE)}
            total["private"] += sizes["Private_Dirty"]
            total["pss"] += sizes["Pss"]
            total["rss"] += sizes["Rss"]
    return total
