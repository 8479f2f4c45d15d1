"""Servers behind the proxy: a thread per connection runs a script over a stream."""

import socket
import threading

from harness import PATIENCE, until
from streams import ORDERLY, PlainStream, TlsStream


class Connection:
    """One accepted connection: its stream, and what the script returned."""

    def __init__(self, stream):
        self.stream = stream
        self.result = None
        self.error = None
        self.done = threading.Event()

    def outcome(self, seconds=20.0):
        """What the script returned; raises what it raised."""
        if not self.done.wait(seconds * PATIENCE):
            raise AssertionError("the backend's script is not done")
        if self.error is not None:
            raise self.error
        return self.result


class Backend:
    """Listens on a free port and runs serve(stream) for each connection; closes the stream after it."""

    def __init__(self, serve, *, tls=None, host="127.0.0.1", port=0, unix=None, patience=15.0):
        self.serve, self._tls, self._patience = serve, tls, patience
        self.connections = []
        if unix is not None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(unix)
            self.address = f"unix:{unix}"
        else:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.socket(family)
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((host, port))
            self.port = self._listener.getsockname()[1]
            self.address = f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"
        self._listener.listen(4096)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self.stop()

    def stop(self):
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        except OSError:
            pass
        self._thread.join()
        self._listener.close()
        for connection in self.connections:
            connection.stream.released.set()
            try:
                connection.stream.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for connection in self.connections:
            connection.done.wait(5)

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            if self._tls is None:
                stream = PlainStream(sock, self._patience)
            else:
                stream = TlsStream(sock, self._tls, server_side=True, patience=self._patience)
            connection = Connection(stream)
            self.connections.append(connection)
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()

    def _run(self, connection):
        try:
            if isinstance(connection.stream, TlsStream):
                connection.stream.handshake()
            connection.result = self.serve(connection.stream)
        except BaseException as error:  # handed to whoever asks for the outcome
            connection.error = error
        finally:
            connection.stream.close()
            connection.done.set()

    def connection(self, index=0, seconds=10.0):
        """The index-th connection, waited for."""
        until(lambda: len(self.connections) > index, f"connection {index} at the backend", seconds)
        return self.connections[index]

    def outcome(self, index=0, seconds=20.0):
        return self.connection(index).outcome(seconds)

    def open_connections(self):
        return sum(not connection.done.is_set() for connection in self.connections)


def record(stream, seconds=None):
    """Reads to the end and answers an orderly one in kind; its result is a streams.Received."""
    received = stream.read_to_end(seconds)
    if received.ending == ORDERLY:
        try:
            stream.finish()
        except OSError:
            pass  # the peer did not wait for ours
    return received


def record_patiently(stream):
    """The same for a peer that may be silent for a minute."""
    return record(stream, seconds=60)


def echo(stream):
    """Sends back what comes, then ends its direction; the result is how the peer ended."""
    while data := stream.recv(seconds=120):
        stream.send(data)
    if stream.ending == ORDERLY:
        stream.finish()
    return stream.ending


def say(text):
    """A script that sends `text` at once and then records."""

    def serve(stream):
        stream.send(text)
        return record(stream)

    return serve


def say_and_close(text):
    """A script that sends `text` and ends in order, then records."""

    def serve(stream):
        stream.send(text)
        stream.finish()
        return stream.read_to_end()

    return serve


def identify(name):
    """A script that answers the first bytes with a name and ends in order: which backend was it?"""

    def serve(stream):
        stream.recv()
        stream.send(name)
        stream.finish()
        return stream.read_to_end()

    return serve


def stay(stream):
    """Keeps the connection as it is until the test ends: neither reads nor ends."""
    stream.released.wait(120)


class FullBacklog:
    """A listener that accepts nothing and whose queue is full: a connect to it stays pending."""

    def __init__(self):
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._queued = []

    def __enter__(self):
        for _ in range(16):
            sock = socket.socket()
            sock.settimeout(0.3)
            self._queued.append(sock)
            try:
                sock.connect(("127.0.0.1", self.port))
            except TimeoutError:
                return self
        raise AssertionError("the backlog never filled")

    def __exit__(self, *exception):
        for sock in self._queued:
            sock.close()
        self._listener.close()


def free_port():
    """A TCP port of the loopback that nobody had a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
