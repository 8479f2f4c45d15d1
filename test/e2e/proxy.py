"""The program under test as a process: started, watched through its logs and /proc, and stopped."""

import fcntl
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile

from harness import BINARY, PATIENCE, until

SANITIZER = re.compile(r"ERROR: (Address|Leak)Sanitizer|runtime error:|LeakSanitizer has encountered")
BROKEN_BELIEF = "broken belief"


def run_program(*arguments, seconds=30, **options):
    """Runs the program to its end; returns the CompletedProcess with text."""
    options.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True,
                          timeout=seconds * PATIENCE, **options)  # fmt: skip


def with_user(configuration):
    """As root the program wants to be told whom to become."""
    if os.geteuid() == 0:
        return {"user": "nobody", **configuration}
    return configuration


class Proxy:
    """Configuration as a dict (completed with one worker, a user when run as root, and a JSON access
    log) or as YAML text taken as it is. Files live in `folder`, a temporary one unless given.
    """

    def __init__(self, configuration, *, arguments=(), environment=None, sockets=None):
        self._temporary = tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-")
        self.folder = pathlib.Path(self._temporary.name)
        self.folder.chmod(0o755)
        self.file = self.folder / "tlsproxy.yaml"
        self.access_file = self.folder / "access.log"
        self._stderr = self._error_log = self.folder / "stderr.log"
        self._arguments = [str(argument) for argument in arguments]
        self._environment = environment or {}
        self._sockets = sockets or {}
        self._kept_log = ""
        self.process = None
        self.write(configuration)

    # --- configuration ---------------------------------------------------------------------------

    def write(self, configuration):
        """Replaces the configuration file; takes effect at the next start or reload."""
        if isinstance(configuration, dict):
            complete = {"workers": 1, **with_user(configuration)}
            log = {"level": "info", "access": {"path": str(self.access_file), "format": "json"}}
            complete["log"] = {**log, **configuration.get("log", {})}
            self._error_log = self.folder / complete["log"].get("path", self._stderr)
            complete["listeners"] = [self._hurried(listener) for listener in complete["listeners"]]
            configuration = json.dumps(complete, indent=2)
        if isinstance(configuration, str):
            configuration = configuration.encode()
        new = self.file.with_suffix(".new")
        new.write_bytes(configuration)
        new.rename(self.file)

    @staticmethod
    def _hurried(listener):
        """A test's client often keeps its side open to the end: no test should wait 5 s for it."""
        return {**listener, "timeouts": {"linger": "300ms", **listener.get("timeouts", {})}}

    # --- life ------------------------------------------------------------------------------------

    def launch(self):
        """Starts the process and does not wait for it."""
        command, options = [BINARY, "-c", str(self.file), *self._arguments], {}
        if self._sockets:
            command = ["sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', *command]
            self._environment["LISTEN_FDS"] = str(len(self._sockets))
            self._environment["LISTEN_FDNAMES"] = ":".join(self._sockets)
            options = {"preexec_fn": self._place_sockets, "pass_fds": range(3, 3 + len(self._sockets))}
        with open(self._stderr, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, **self._environment}, **options,
            )  # fmt: skip

    def _place_sockets(self):
        """In the child: they become descriptors 3 and up, by way of numbers that are surely higher."""
        above = 3 + len(self._sockets)
        high = [fcntl.fcntl(sock.fileno(), fcntl.F_DUPFD, above) for sock in self._sockets.values()]
        for number, descriptor in enumerate(high, 3):
            os.dup2(descriptor, number)

    def start(self):
        self.launch()
        self.wait_ready()
        return self

    def wait_ready(self, seconds=10):
        def ready():
            if self.process.poll() is not None:
                raise AssertionError(f"the proxy ended with {self.process.returncode} at start:\n{self.log_tail()}")
            return "ready: generation 1" in self.log()

        until(ready, "the proxy to be ready", seconds)

    def signal(self, number):
        os.kill(self.pid, number)

    def wait_exit(self, seconds=15):
        try:
            return self.process.wait(seconds * PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the proxy has not ended within {seconds * PATIENCE:g} s") from None

    def stop(self):
        """Ends it with SIGTERM unless it has ended; it must exit with 0 and leave no report of a fault."""
        if self.process is None or self._temporary is None:
            return
        try:
            if self.process.poll() is None:
                self.signal(signal.SIGTERM)
                self.wait_exit()
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            self._kept_log = self.log()
            if self._error_log != self._stderr:
                self._kept_log += self._stderr.read_text(errors="replace")
            self._temporary.cleanup()
            self._temporary = None
        assert self.process.returncode == 0, f"exit status {self.process.returncode}"
        assert not SANITIZER.search(self._kept_log), "a sanitizer reported a fault"
        assert BROKEN_BELIEF not in self._kept_log, "a check of the program's own failed"

    def discard(self):
        """For a proxy whose end is the test's own matter: nothing is checked, nothing is left."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._temporary.cleanup()

    # --- reload ----------------------------------------------------------------------------------

    def generation(self):
        found = re.findall(r"generation (\d+) is live", self.log())
        return int(found[-1]) if found else 1

    def reload(self, configuration=None, seconds=15):
        """Applies a good configuration (the file as it is when None) and waits until it is live."""
        if configuration is not None:
            self.write(configuration)
        before, place = self.generation(), self.log_position()
        self.signal(signal.SIGHUP)

        def live():
            if "reload refused" in self.log(place):
                raise AssertionError(f"the reload was refused:\n{self.log(place)}")
            return self.generation() > before

        until(live, "a new generation to be live", seconds)

    def reload_refused(self, configuration=None, seconds=15):
        """Offers a bad configuration and returns what the log said about it."""
        if configuration is not None:
            self.write(configuration)
        place = self.log_position()
        self.signal(signal.SIGHUP)

        def refused():
            if re.search(r"generation \d+ is live", self.log(place)):
                raise AssertionError("the reload was accepted")
            return "reload refused" in self.log(place)

        until(refused, "the reload to be refused", seconds)
        return self.log(place)

    # --- addresses -------------------------------------------------------------------------------

    def ports(self, listener):
        """The ports of a listener in the order they were bound."""
        found = re.findall(r"listening on (\S+) \(listener ([^)]+)\)", self.log())
        addresses = [address for address, name in found if name == listener and "unix:" not in address]
        return [int(address.rsplit(":", 1)[1]) for address in addresses]

    def port(self, listener="front"):
        return until(lambda: self.ports(listener), f"listener {listener} in the log")[-1]

    def address(self, listener="front"):
        return ("127.0.0.1", self.port(listener))

    # --- logs ------------------------------------------------------------------------------------

    def log(self, position=0):
        """The error log from a byte position on: what came on stderr, unless the test chose a file."""
        if self._temporary is None:
            return self._kept_log[position:]
        try:
            return self._error_log.read_bytes()[position:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def log_position(self):
        return self._error_log.stat().st_size

    def log_tail(self, lines=40):
        return "".join(line + "\n" for line in self.log().splitlines()[-lines:])

    def wait_log(self, pattern, position=0, seconds=10):
        return until(lambda: re.search(pattern, self.log(position)), f"'{pattern}' in the log", seconds)

    def sessions(self, **facts):
        """The access log's lines that have these facts, as dicts."""
        try:
            text = self.access_file.read_text()
        except FileNotFoundError:
            return []
        complete = text[: text.rfind("\n") + 1]
        lines = [json.loads(line) for line in complete.splitlines()]
        return [line for line in lines if all(line.get(key) == value for key, value in facts.items())]

    def session(self, seconds=10, **facts):
        """The first access line with these facts, waited for."""
        def missing():
            return f"an access line with {facts}; there are: {self.sessions()[-5:]}"

        return until(lambda: self.sessions(**facts), missing, seconds)[0]

    # --- what /proc says -------------------------------------------------------------------------

    @property
    def pid(self):
        return self.process.pid

    def workers(self):
        """The pids of the master's children."""
        return children(self.pid)

    def worker(self):
        (pid,) = self.workers()
        return pid

    def descriptors(self):
        """Open descriptors of all workers together."""
        return sum(map(descriptors, self.workers()))


def children(pid):
    found = []
    for entry in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (entry / "children").read_text().split())
    return [child for child in sorted(found) if _state(child) not in ("Z", "X", None)]


def _stat(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return text[text.rindex(")") + 2 :].split()


def _state(pid):
    try:
        return _stat(pid)[0]
    except (FileNotFoundError, ProcessLookupError):
        return None


def cpu_ticks(pid):
    """User and system time so far."""
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12])


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def status(pid, field):
    """One field of /proc/PID/status as text."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return re.search(rf"^{field}:\s*(.*)$", text, re.MULTILINE).group(1)


def resident_kib(pid):
    return int(status(pid, "VmRSS").split()[0])
