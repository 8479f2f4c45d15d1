"""Our load generator and backend, and wrk with an HTTP server as the independent pair."""

import json
import os
import select
import subprocess
import time

import machine
import processes
import subjects

_WRK_SUMMARY = """done = function(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('\\n{"operations": %d, "bytes": %d, "microseconds": %d, "failed": %d}\\n', summary.requests,
    summary.bytes, summary.duration, e.connect + e.read + e.write + e.status + e.timeout))
end
"""


class Failed(Exception):
    """This one measurement came to nothing; the text says why."""


class Lines:
    """Lines of a process's output as they come, each with a deadline."""

    def __init__(self, process):
        self._process, self._rest = process, b""

    def next(self, seconds):
        """None at the end of the output."""
        end = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._process.stdout], [], [], left)[0]:
                raise Failed("the generator went silent")
            piece = self._process.stdout.read1(65536)
            if not piece:
                return None
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()


class Backend:
    """tlsproxy-backend in one of its modes, on the generator's CPU; "answer 300" is answers of 300 bytes."""

    def __init__(self, folder, build, mode, cpus, ports):
        self.port = ports.take()
        mode, _, size = mode.partition(" ")
        with open(folder / f"backend-{mode}.out", "w") as out:
            self._process = processes.start(
                [build / "benchmark/tlsproxy-backend", "--listen", f"127.0.0.1:{self.port}", "--mode", mode,
                 *(["--answer", size] if size else [])],
                cpus.enter_generator, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # fmt: skip
        subjects.await_listener(self.port, self._process, f"the {mode} backend")
        self.pids = [self._process.pid]

    def stop(self):
        processes.stop(self._process)


class HttpBackend:
    """nginx as an HTTP server of files of the given sizes, on the generator's CPU."""

    def __init__(self, folder, program, sizes, cpus, ports):
        self.port = ports.take()
        files = folder / "http"
        files.mkdir(exist_ok=True)
        folder.chmod(0o755)
        for size in sizes:
            (files / str(size)).write_bytes(bytes(int(size)))
        (folder / "http.conf").write_text(f"""daemon off;
worker_processes 1;
{"user root root;" if os.geteuid() == 0 else ""}
pid {folder}/http.pid;
error_log /dev/null emerg;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  open_file_cache max=16;
  client_body_temp_path {folder}/http-temp;
  proxy_temp_path {folder}/http-temp;
  fastcgi_temp_path {folder}/http-temp;
  uwsgi_temp_path {folder}/http-temp;
  scgi_temp_path {folder}/http-temp;
  server {{ listen 127.0.0.1:{self.port}; root {files}; }}
}}
""")
        with open(folder / "http.out", "w") as out:
            self._process = processes.start([program, "-p", folder, "-e", "/dev/null", "-c", folder / "http.conf"],
                                            cpus.enter_generator, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # fmt: skip
        subjects.await_listener(self.port, self._process, "the HTTP backend")
        self.pids = processes.tree(self._process.pid)

    def stop(self):
        processes.stop(self._process)


class Window:
    """What the subject, the backend and the subject's CPU did between `open` and `close`."""

    def __init__(self, subject, backend, cpus):
        self._subject, self._backend, self._cpus = subject, backend, cpus
        self._begin = None
        self.seconds = self.subject = self.backend = self.busy = 0.0

    def _now(self):
        return (time.monotonic(), self._subject.cpu_seconds(), processes.cpu_seconds(self._backend.pids),
                machine.cpu_busy(self._cpus.subject))  # fmt: skip

    def open(self):
        self._begin = self._now()

    def close(self):
        if self._begin is not None:
            differences = [after - before for before, after in zip(self._begin, self._now())]
            self.seconds, self.subject, self.backend, self.busy = differences


def _patience(seconds):
    return 90 + 2 * seconds


def run(build, arguments, port, window, subject, cpus, seconds, warmup, tls, held=None):
    """One run of tlsproxy-load: its JSON. `held()` is called while all connections of the mode `idle` are up."""
    command = [build / "benchmark/tlsproxy-load", "--connect", f"127.0.0.1:{port}", "--seconds", seconds,
               "--warmup", warmup, "--announce"]  # fmt: skip
    if tls:
        command += ["--tls", "--suite", subjects.SUITE, "--group", subjects.GROUP]
    for pid in subject.pids:
        command += ["--watch", pid]
    process = processes.start([*command, *arguments], cpus.enter_generator,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        lines, result = Lines(process), None
        while (line := lines.next(_patience(seconds + warmup))) is not None:
            if line == "measuring":
                window.open()
            elif line == "measured":
                window.close()
            elif line.startswith("held"):
                held()
                process.stdin.write(b"go\n")
                process.stdin.flush()
            elif line.startswith("{"):
                result = json.loads(line)
        process.wait(10)
        if process.returncode != 0 or result is None:
            complaint = process.stderr.read().decode().strip()
            raise Failed(f"the generator ended with status {process.returncode}: {complaint[:200]}")
        return result
    finally:
        processes.stop(process)


def run_wrk(folder, path, port, window, cpus, seconds, connections):
    """One run of wrk: operations, bytes, seconds, failed. Its window is the whole of it, handshakes included."""
    script = folder / "summary.lua"
    script.write_text(_WRK_SUMMARY)
    window.open()
    process = processes.start(["wrk", "-t", 1, "-c", connections, "-d", f"{max(1, round(seconds))}s", "-s", script,
                               f"https://127.0.0.1:{port}/{path}"], cpus.enter_generator,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    try:
        told, _ = process.communicate(timeout=_patience(seconds))
        window.close()
        for line in told.decode(errors="replace").splitlines():
            if line.startswith("{"):
                summary = json.loads(line)
                summary["seconds"] = summary.pop("microseconds") / 1e6
                return summary
        raise Failed(f"wrk: {told.decode(errors='replace').strip()[-200:]}")
    except subprocess.TimeoutExpired:
        raise Failed("wrk went silent") from None
    finally:
        processes.stop(process)
