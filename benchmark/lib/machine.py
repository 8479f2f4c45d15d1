"""The machine under the measurement: its CPUs, its quiet, its settings, and what it is made of."""

import contextlib
import datetime
import fcntl
import json
import os
import pathlib
import platform
import re
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

CONGESTION = pathlib.Path("/proc/sys/net/ipv4/tcp_congestion_control")
PROBE_LIMIT = 1.6  # a CPU is busy with something else when its probe is this much above the best seen
BUSY_LIMIT = 0.25  # of a CPU, before a measurement: others are at work; a tick is 0.1 of what is looked at


class Unusable(Exception):
    """The machine, or what is on it, cannot be used for this measurement; the text says what to do."""


@contextlib.contextmanager
def only_one():
    """Two benchmarks at once would measure each other."""
    lock = open(pathlib.Path(tempfile.gettempdir()) / "tlsproxy-benchmark.lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Unusable("another benchmark is running on this machine") from None
    with lock:
        yield


class Cpus:
    """One CPU for the subject, one for the generator with its backend and this program."""

    def __init__(self):
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise Unusable("two CPUs are needed: one for the subject, one for the generator and the backend")
        self.subject, self.generator = allowed[-1], allowed[0]
        os.sched_setaffinity(0, {self.generator})
        self._folder = None
        self.method = "taskset"

    def __enter__(self):
        for root, prefix in ((pathlib.Path("/sys/fs/cgroup/cpuset"), "cpuset."),
                             (pathlib.Path("/sys/fs/cgroup"), "cpuset.")):  # fmt: skip
            folder = root / f"tlsproxy-benchmark-{os.getpid()}"
            for left in root.glob("tlsproxy-benchmark-*"):  # of a run that was killed; one in use cannot be removed
                with contextlib.suppress(OSError):
                    left.rmdir()
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                mems = (root / (prefix + "mems")) if (root / (prefix + "mems")).exists() else root / "cpuset.mems.effective"
                (folder / (prefix + "mems")).write_text(mems.read_text().strip())
                (folder / (prefix + "cpus")).write_text(str(self.subject))
            except OSError:
                folder.rmdir()
                continue
            self._folder, self.method = folder, "cpuset"
            break
        return self

    def __exit__(self, *_):
        if self._folder is None:
            return
        for _ in range(50):  # the kernel takes a moment to see that the last process is gone
            with contextlib.suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.1)

    def enter_subject(self):
        """Called in a new process before it becomes the subject."""
        if self._folder is not None:
            (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        os.sched_setaffinity(0, {self.subject})

    def enter_generator(self):
        os.sched_setaffinity(0, {self.generator})


class Probe:
    """How long a 64-byte write and its read over a loopback TCP pair take: the price of the kernel's paths now.

    The best value of each CPU is remembered until the next boot, so that a run that begins in a busy time knows it.
    """

    _EXCHANGES = 200
    _BATCHES = 9

    def __init__(self, cpus, memory):
        self._cpus = sorted({cpus.subject, cpus.generator})
        self._home = cpus.generator
        self._memory = memory
        self._boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.best = {}
        with contextlib.suppress(OSError, ValueError, KeyError):
            known = json.loads(memory.read_text())
            if known["boot"] == self._boot:
                self.best = {int(cpu): us for cpu, us in known["best"].items()}
        with socket.create_server(("127.0.0.1", 0)) as server:
            self._one = socket.create_connection(server.getsockname())
            self._two, _ = server.accept()
        for end in (self._one, self._two):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self._one.close()
        self._two.close()

    def _measure(self):
        payload, batches = bytes(64), []
        send, receive = self._one.send, self._two.recv
        for _ in range(self._BATCHES):
            begin = time.perf_counter_ns()
            for _ in range(self._EXCHANGES):
                send(payload)
                receive(64)
            batches.append((time.perf_counter_ns() - begin) / self._EXCHANGES / 1000)
        return statistics.median(batches)

    def look(self):
        """Microseconds per exchange on each CPU, and the worst ratio to the best seen."""
        now = {}
        try:
            for cpu in self._cpus:
                os.sched_setaffinity(0, {cpu})
                now[cpu] = self._measure()
        finally:
            os.sched_setaffinity(0, {self._home})
        better = {cpu: us for cpu, us in now.items() if us < self.best.get(cpu, float("inf"))}
        if better:
            self.best.update(better)
            with contextlib.suppress(OSError):
                self._memory.parent.mkdir(parents=True, exist_ok=True)
                self._memory.write_text(json.dumps({"boot": self._boot, "best": self.best}))
        return now, max(us / self.best[cpu] for cpu, us in now.items())

    def wait_for_calm(self, seconds):
        """Looks until the probe is fast and the CPUs are idle, at most `seconds`; what was seen last."""
        end = time.monotonic() + seconds
        while True:
            now, ratio = self.look()
            if ratio <= PROBE_LIMIT and self._others() <= BUSY_LIMIT or time.monotonic() >= end:
                return now, ratio
            time.sleep(0.5)

    def _others(self):
        """What part of the busier CPU is used while we sleep."""
        seconds = 0.1
        before = [cpu_busy(cpu) for cpu in self._cpus]
        time.sleep(seconds)
        return max(cpu_busy(cpu) - busy for cpu, busy in zip(self._cpus, before)) / seconds


@contextlib.contextmanager
def congestion_control(wanted="cubic"):
    """Loopback has no bottleneck to model: pacing (bbr) would be measured instead of the proxy. Restored at the end."""
    before = CONGESTION.read_text().strip()
    changed = False
    if before != wanted:
        try:
            CONGESTION.write_text(wanted)
            changed = True
        except OSError:
            pass
    try:
        yield {"before": before, "during": CONGESTION.read_text().strip(), "changed": changed}
    finally:
        if changed:
            CONGESTION.write_text(before)


def cpu_busy(cpu):
    """Seconds that the CPU has not been idle since boot, whoever used it."""
    ticks = os.sysconf("SC_CLK_TCK")
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if name == f"cpu{cpu}":
            values = [int(field) for field in fields]
            return (sum(values[:8]) - values[3] - values[4]) / ticks
    raise Unusable(f"/proc/stat does not know CPU {cpu}")


def ports():
    """Connections in TIME_WAIT, and how many ephemeral ports there are."""
    low, high = map(int, pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    waiting = re.search(r"^TCP:.* tw (\d+)", pathlib.Path("/proc/net/sockstat").read_text(), re.MULTILINE)
    return int(waiting.group(1)) if waiting else 0, high - low + 1


def _output(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).strip()


def _setting(name):
    try:
        return pathlib.Path("/proc/sys", *name.split(".")).read_text().strip()
    except OSError:
        return None


_SYSCTLS = (
    "net.ipv4.tcp_congestion_control", "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem", "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_tw_reuse", "net.ipv4.ip_local_port_range", "net.core.somaxconn", "net.core.rmem_max",
    "net.core.wmem_max", "net.ipv4.tcp_autocorking", "fs.pipe-max-size", "fs.pipe-user-pages-soft",
    "vm.overcommit_memory", "kernel.randomize_va_space",
)  # fmt: skip


def libraries(binary):
    """The versions of the Debian packages behind what the program is linked to."""
    found = {}
    for path in re.findall(r"=> (\S+)", _output("ldd", binary)):
        owner = _output("dpkg-query", "-S", os.path.realpath(path)).partition(":")[0]
        if owner and "no path" not in owner:
            found[pathlib.Path(path).name] = f"{owner} {_output('dpkg-query', '-W', '-f', '${Version}', owner)}"
    return found


def provenance(root, build):
    """What a reader needs to know to repeat a run, but for the subjects, which tell about themselves."""
    cache = {}
    with contextlib.suppress(OSError):
        for line in (build / "CMakeCache.txt").read_text().splitlines():
            key, _, value = line.partition("=")
            cache[key.partition(":")[0]] = value
    cpu = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    git = ("git", "-C", str(root))
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": _output(*git, "rev-parse", "HEAD"),
        "uncommitted": bool(_output(*git, "status", "--porcelain", "--untracked-files=no")),
        "build": {
            "type": cache.get("CMAKE_BUILD_TYPE"),
            "flags": cache.get("CMAKE_CXX_FLAGS"),
            "sanitized": cache.get("TLSPROXY_SANITIZE"),
            "compiler": _output(cache.get("CMAKE_CXX_COMPILER", "c++"), "--version").partition("\n")[0],
        },
        "kernel": platform.release(),
        "kernel_build": platform.version(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME"),
        "libc": " ".join(platform.libc_ver()),
        "openssl": _output("openssl", "version"),
        "cpu": cpu.group(1) if cpu else platform.machine(),
        "cpus": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20,
        "hypervisor": _output("systemd-detect-virt") if shutil.which("systemd-detect-virt") else None,
        "load_at_start": os.getloadavg(),
        "sysctls": {name: _setting(name) for name in _SYSCTLS},
    }


class Anywhere:
    """Where it does not matter which CPU a process runs on."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def enter_subject(self):
        pass

    def enter_generator(self):
        pass
