"""The proxies that are compared: how each is configured, so that all do the same work, and how each is started.

The same for all: one worker on one CPU, TLS 1.3 with one suite and one group, one certificate, stateless session tickets
as each issues them by itself, no log of any kind, one backend connection for each client connection.
"""

import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import time

import machine
import processes

SUITE = "TLS_AES_128_GCM_SHA256"
GROUP = "X25519"
SPLICE_PIPES = 256  # what haproxy may open of them; they cost descriptors that held connections need

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def descriptors():
    """How many a process may have open; as many as it may ask for."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(hard, 1 << 20)


def certificate(folder, kind):
    """A self-signed certificate and its key: chain, key, and both in one file, as haproxy wants them."""
    chain, key, both = folder / "chain.pem", folder / "key.pem", folder / "both.pem"
    algorithm = ["-newkey", "rsa:2048"] if kind == "rsa" else ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    subprocess.run(["openssl", "req", "-x509", "-nodes", *algorithm, "-keyout", key, "-out", chain, "-days", "30",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
                   check=True, capture_output=True)  # fmt: skip
    both.write_text(chain.read_text() + key.read_text())
    for file in (key, both):
        file.chmod(0o644)  # workers of every subject may read them, whoever they run as
    return {"chain": chain, "key": key, "both": both}


class Ports:
    """Ports below the ephemeral range that nobody listens on."""

    def __init__(self, first=20100):
        self._next = first

    def take(self):
        for port in range(self._next, self._next + 200):
            with socket.socket() as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    trial.bind(("127.0.0.1", port))
                except OSError:
                    continue
            self._next = port + 1
            return port
        raise machine.Unusable(f"no free port from {self._next} on")


def await_family(process, number, what, seconds=10):
    """The ids of the process and what it has started, once they are as many as they should be and stay so.

    A master listens before its worker is there.
    """
    end, before = time.monotonic() + seconds, []
    while time.monotonic() < end:
        now = processes.tree(process.pid)
        if len(now) == number and now == before:
            return now
        before = now
        time.sleep(0.05)
    raise machine.Unusable(f"{what} has {len(before)} processes after {seconds} s, expected {number}")


def await_listener(port, process, what, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise machine.Unusable(f"{what} ended with status {process.returncode} instead of listening")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise machine.Unusable(f"{what} does not listen on port {port} after {seconds} s")


class Subject:
    """One proxy as it is compared. `start` gives a Running, whose end is the caller's to see to."""

    package = None
    plain_only = False
    proxies = True
    family = 2  # processes: a master and its worker

    def __init__(self, name, program, tuned=""):
        self.name, self.program, self.tuned = name, program, tuned

    def missing(self):
        """What to do when the program is not there; None when it is."""
        if shutil.which(self.program):
            return None
        return f"{self.name}: no program {self.program}; " + (
            f"apt-get install {self.package}" if self.package else "build it first")  # fmt: skip

    def version(self):
        done = subprocess.run([self.program, *self.version_flags], capture_output=True, text=True)
        return (done.stdout + done.stderr).strip()

    def facts(self):
        path = shutil.which(self.program)
        return {"program": str(pathlib.Path(path).name), "tuned": self.tuned or "as shipped", "version": self.version(),
                "libraries": machine.libraries(path)}  # fmt: skip

    def start(self, folder, cpus, tls_port, plain_port, backend_port, cert):
        text, command = self.configure(folder, tls_port, plain_port, backend_port, cert)
        file = folder / self.file
        file.write_text(text)
        with open(folder / f"{self.name}.out", "w") as out:
            process = processes.start([word if word is not self.file else file for word in command],
                                      cpus.enter_subject, stdin=subprocess.DEVNULL, stdout=out, stderr=out)  # fmt: skip
        try:
            for port in (tls_port, plain_port):
                await_listener(port, process, self.name)
            return Running(process, await_family(process, self.family, self.name))
        except machine.Unusable as problem:
            processes.stop(process)
            raise machine.Unusable(f"{problem}; it said: {(folder / f'{self.name}.out').read_text()[-800:]}") from None


class Running:
    def __init__(self, process, pids):
        self._process, self.pids = process, pids

    def unchanged(self):
        return processes.tree(self._process.pid) == self.pids

    def cpu_seconds(self):
        return processes.cpu_seconds(self.pids)

    def memory(self):
        return processes.memory(self.pids)

    def stop(self):
        processes.stop(self._process)


class Tlsproxy(Subject):
    file = "tlsproxy.yaml"
    version_flags = ["-V"]

    def configure(self, folder, tls_port, plain_port, backend_port, cert):
        user = "user: nobody\n" if os.geteuid() == 0 else ""
        text = f"""workers: 1
{user}log: {{level: off}}
listeners:
  - name: tls
    bind: 127.0.0.1:{tls_port}
    tls:
      certificates: [{{chain: "{cert['chain']}", key: "{cert['key']}"}}]
      min_version: TLSv1.3
      max_version: TLSv1.3
      ciphersuites: "{SUITE}"
      groups: "{GROUP}"
    to: backend
  - name: plain
    bind: 127.0.0.1:{plain_port}
    to: backend
backends:
  backend: ["127.0.0.1:{backend_port}"]
"""
        return text, [self.program, "-c", self.file]


class Nginx(Subject):
    file = "nginx.conf"
    package = "nginx-light libnginx-mod-stream"
    version_flags = ["-v"]

    def configure(self, folder, tls_port, plain_port, backend_port, cert):
        user = "user nobody nogroup;\n" if os.geteuid() == 0 else ""
        text = f"""{stream_module(self.program)}{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log /dev/null emerg;
events {{ worker_connections {descriptors() - 64}; }}
stream {{
  ssl_protocols TLSv1.3;
  ssl_conf_command Ciphersuites {SUITE};
  ssl_ecdh_curve {GROUP};
  ssl_certificate {cert['chain']};
  ssl_certificate_key {cert['key']};
  {self.tuned}
  server {{ listen 127.0.0.1:{tls_port} ssl; proxy_pass 127.0.0.1:{backend_port}; }}
  server {{ listen 127.0.0.1:{plain_port}; proxy_pass 127.0.0.1:{backend_port}; }}
}}
"""
        return text, [self.program, "-p", folder, "-e", "/dev/null", "-c", self.file]


def stream_module(program):
    """The line that loads nginx's stream module, where it is not built in."""
    told = subprocess.run([program, "-V"], capture_output=True, text=True).stderr
    if "--with-stream=dynamic" not in told:
        return ""
    folder = re.search(r"--modules-path=(\S+)", told)
    module = pathlib.Path(folder.group(1) if folder else "modules") / "ngx_stream_module.so"
    if not module.exists():
        raise machine.Unusable(f"{program} has no stream module: apt-get install libnginx-mod-stream")
    return f"load_module {module};\n"


class Haproxy(Subject):
    family = 1
    file = "haproxy.cfg"
    package = "haproxy"
    version_flags = ["-v"]

    def __init__(self, name, program, tuned="", options=""):
        super().__init__(name, program, tuned or options)
        self._global, self._options = tuned, options
        self.plain_only = "splice" in options

    def configure(self, folder, tls_port, plain_port, backend_port, cert):
        user = "user nobody\n  group nogroup\n  " if os.geteuid() == 0 else ""
        text = f"""global
  {user}nbthread 1
  maxconn {(descriptors() - 200 - 2 * SPLICE_PIPES) // 2}
  maxpipes {SPLICE_PIPES}
  {self._global}
defaults
  mode tcp
  timeout connect 60s
  timeout client 10m
  timeout server 10m
  {self._options}
frontend tls
  bind 127.0.0.1:{tls_port} ssl crt {cert['both']} ssl-min-ver TLSv1.3 ssl-max-ver TLSv1.3 ciphersuites {SUITE} curves {GROUP}
  default_backend backend
frontend plain
  bind 127.0.0.1:{plain_port}
  default_backend backend
backend backend
  server backend 127.0.0.1:{backend_port}
"""
        return text, [self.program, "-db", "-f", self.file]


class Direct(Subject):
    """No proxy: what the generator and the backend reach by themselves. The floor of latency, the ceiling of the rest."""

    plain_only = True
    proxies = False

    def __init__(self):
        super().__init__("direct", "")

    def missing(self):
        return None

    def facts(self):
        return {"tuned": "no proxy, plain TCP"}

    def start(self, folder, cpus, tls_port, plain_port, backend_port, cert):
        return NoProxy()


class NoProxy:
    pids = ()

    def unchanged(self):
        return True

    def cpu_seconds(self):
        return 0.0

    def memory(self):
        return {"private": 0, "pss": 0, "rss": 0}

    def stop(self):
        pass


def all_subjects():
    """By name, in the order of the tables; programs may be replaced through the environment."""
    tlsproxy = os.environ.get("TLSPROXY") or str(_ROOT / "build/release/tlsproxy")
    nginx = os.environ.get("NGINX") or shutil.which("nginx") or "/usr/sbin/nginx"
    haproxy = os.environ.get("HAPROXY") or shutil.which("haproxy") or "/usr/sbin/haproxy"
    known = [Tlsproxy("tlsproxy", tlsproxy)]
    if os.environ.get("TLSPROXY_OLD"):
        known.append(Tlsproxy("tlsproxy-old", os.environ["TLSPROXY_OLD"]))
    known += [
        Nginx("nginx", nginx),
        Nginx("nginx-64k", nginx, "proxy_buffer_size 64k;"),
        Haproxy("haproxy", haproxy),
        Haproxy("haproxy-64k", haproxy, "tune.bufsize 65536"),
        Haproxy("haproxy-splice", haproxy, options="option splice-auto"),
        Direct(),
    ]
    return {subject.name: subject for subject in known}
