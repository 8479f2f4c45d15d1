"""A client and a backend that move a proxy one step at a time, so that what it does for a step can be counted.

After each step `Rig.settle` waits until every process of the subject sleeps and none has run since the last look. Loopback
delivers before a send returns, so nothing is under way then. Amounts that take more than one packet are sent while the subject
is stopped (SIGSTOP), so that it always finds them whole.
"""

import contextlib
import os
import pathlib
import re
import signal
import socket
import ssl
import subprocess
import time

import machine
import processes
import subjects

CHUNK = 64 * 1024
_PATIENCE = 60
_ROOM = 4 << 20  # of socket buffers on our side, so that a send never waits for the stopped subject


class Client:
    """Plain, or TLS through memory BIOs: what is sent when is decided by the steps, not by the TLS library."""

    def __init__(self, rig, port, context, session=None):
        self._rig, self._tls = rig, None
        self._socket = socket.socket()
        self._socket.settimeout(_PATIENCE)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _ROOM)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect(("127.0.0.1", port))
        rig.settle()
        if context is not None:
            self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
            self._tls = context.wrap_bio(self._in, self._out, server_hostname="localhost", session=session)
            self._handshake()

    def _handshake(self):
        while True:
            try:
                self._tls.do_handshake()
                finished = True
            except ssl.SSLWantReadError:
                finished = False
            self._flush()
            self._rig.settle()
            if finished:
                return
            self._fill()

    def _flush(self):
        if pending := self._out.read():
            self._socket.sendall(pending)

    def _fill(self):
        piece = self._socket.recv(1 << 20)
        if piece:
            self._in.write(piece)
        else:
            self._in.write_eof()

    def send(self, data):
        if self._tls is None:
            self._socket.sendall(data)
        else:
            self._tls.write(data)
            self._flush()

    def receive(self, size):
        parts, got = [], 0
        while got < size:
            piece = self._socket.recv(size - got) if self._tls is None else self._decrypt()
            if not piece:
                raise machine.Unusable("the subject ended a session early")
            parts.append(piece)
            got += len(piece)
        return b"".join(parts)

    def _decrypt(self):
        while True:
            try:
                return self._tls.read(1 << 20)
            except ssl.SSLWantReadError:
                self._fill()

    def session(self):
        return self._tls.session

    def resumed(self):
        return self._tls.session_reused

    def end(self):
        """Our end of the stream, in order, without waiting for the other's."""
        if self._tls is not None:
            try:
                self._tls.unwrap()
            except ssl.SSLWantReadError:
                pass
            self._flush()
            self._rig.settle()
        self._socket.shutdown(socket.SHUT_WR)

    def await_end(self):
        while self._socket.recv(1 << 20):
            pass
        self._socket.close()


class Rig:
    """One subject with a backend that is this process."""

    def __init__(self, subject, folder, cpus, environment=None, wrapper=()):
        ports = subjects.Ports()
        self._tls_port, self._plain_port = ports.take(), ports.take()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_PATIENCE)
        certificate = subjects.certificate(folder, "ecdsa")
        text, command = subject.configure(folder, self._tls_port, self._plain_port, self._listener.getsockname()[1], certificate)
        (folder / subject.file).write_text(text)
        command = [*wrapper, *(folder / subject.file if word is subject.file else word for word in command)]
        with open(folder / "subject.out", "w") as out:
            self._process = processes.start(command, cpus.enter_subject, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            env={**os.environ, **(environment or {})})  # fmt: skip
        for port in (self._tls_port, self._plain_port):
            subjects.await_listener(port, self._process, subject.name, _PATIENCE)
        family = subjects.await_family(self._process, subject.family, subject.name, _PATIENCE)
        self.workers = [pid for pid in family if pid != self._process.pid] or family
        self.settle()
        self._forget_trials()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.check_hostname, self.context.verify_mode = False, ssl.CERT_NONE
        self.context.minimum_version = ssl.TLSVersion.TLSv1_3

    def _forget_trials(self):
        """Connections that came of looking whether the subject listens."""
        self._listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()
        self._listener.settimeout(_PATIENCE)

    def stop(self):
        self._listener.close()
        processes.stop(self._process, 20)

    def settle(self):
        end, quiet, before = time.monotonic() + _PATIENCE, 0, None
        while quiet < 3:
            now = [_rest(pid) for pid in self.workers]
            quiet = quiet + 1 if None not in now and now == before else 0
            before = now
            time.sleep(0.0005)
            if time.monotonic() > end:
                raise machine.Unusable("the subject does not come to rest")

    def _signal(self, number):
        for pid in self.workers:
            os.kill(pid, number)

    def whole(self, send):
        """`send()` while the subject does not look, and then what it does about it."""
        self._signal(signal.SIGSTOP)
        for pid in self.workers:
            _await_stop(pid)
        send()
        self._signal(signal.SIGCONT)
        self.settle()

    def open(self, tls, session=None):
        """A session with its backend connection, after one byte went there and back."""
        client = Client(self, self._tls_port if tls else self._plain_port, self.context if tls else None, session)
        server, _ = self._listener.accept()
        server.settimeout(_PATIENCE)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            server.setsockopt(socket.SOL_SOCKET, option, _ROOM)
        server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.settle()
        self.round_trip(client, server, 1)
        return client, server

    def round_trip(self, client, server, size):
        client.send(bytes(size))
        self.settle()
        _exactly(server, size)
        server.sendall(bytes(size))
        self.settle()
        client.receive(size)

    def up(self, client, server):
        self.whole(lambda: client.send(bytes(CHUNK)))
        _exactly(server, CHUNK)
        self.settle()

    def down(self, client, server):
        self.whole(lambda: server.sendall(bytes(CHUNK)))
        client.receive(CHUNK)
        self.settle()

    def close(self, client, server):
        """The client ends, the backend follows."""
        client.end()
        self.settle()
        if server.recv(1):
            raise machine.Unusable("the backend got bytes that nobody sent")
        server.close()
        self.settle()
        client.await_end()
        self.settle()

    def session(self, tls, ticket=None):
        """A whole session; its ticket when it is TLS."""
        client, server = self.open(tls, ticket)
        if ticket is not None and not client.resumed():
            raise machine.Unusable("the subject did not resume a session")
        fresh = client.session() if tls else None
        self.close(client, server)
        return fresh


def _exactly(connection, size):
    while size > 0:
        piece = connection.recv(size)
        if not piece:
            raise machine.Unusable("the subject ended a session early")
        size -= len(piece)


def _state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _rest(pid):
    """How often a sleeping process has slept; None while it does something."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    if not re.search(r"^State:\s+S", text, re.MULTILINE):
        return None
    return re.findall(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)


def _await_stop(pid):
    end = time.monotonic() + _PATIENCE
    while _state(pid) not in "Tt":
        if time.monotonic() > end:
            raise machine.Unusable("the subject does not stop at SIGSTOP")
        time.sleep(0.0002)
