"""Both ends of a connection, plain or TLS, with the ways of ending that a socket API usually hides.

PlainStream and TlsStream have one interface, so that a test is written once for every mode. TLS runs
over memory buffers: only so can a test end one direction and read on, truncate, or reset.
"""

import dataclasses
import hashlib
import socket
import ssl
import struct
import threading
import time

from harness import PATIENCE

ORDERLY = "orderly"  # FIN; with TLS a close_notify before it
TRUNCATED = "truncated"  # TLS only: FIN without close_notify
RESET = "reset"
ALERT = "alert"  # TLS only: a fatal alert, or bytes that are not TLS
OPEN_AFTER_CLOSE_NOTIFY = "close_notify without FIN"

_CHUNK = 256 * 1024


@dataclasses.dataclass
class Received:
    """What a stream brought until its end."""

    length: int
    head: bytes = dataclasses.field(repr=False)  # the first 4096 bytes
    sha256: str
    ending: str


class PlainStream:
    def __init__(self, sock, patience=15.0):
        self.sock = sock
        self.patience = patience * PATIENCE
        self.ending = None  # how the peer ended, once known
        self.released = threading.Event()  # set when the script that has this stream should end
        sock.settimeout(self.patience)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data):
        self.sock.sendall(data)

    def recv(self, limit=_CHUNK, seconds=None):
        """Some bytes, or none at the peer's end, whose kind is then in `ending`. TimeoutError otherwise."""
        data = self._recv_raw(limit, seconds)
        if not data and self.ending is None:
            self.ending = ORDERLY
        return data

    def _recv_raw(self, limit, seconds):
        self.sock.settimeout(self.patience if seconds is None else seconds)
        try:
            return self.sock.recv(limit)
        except (ConnectionResetError, BrokenPipeError):
            self.ending = RESET
            return b""
        finally:
            self.sock.settimeout(self.patience)

    def read_exactly(self, count, seconds=None):
        """`count` bytes, or an AssertionError that tells what came instead."""
        data = b""
        while len(data) < count:
            piece = self.recv(count - len(data), seconds)
            if not piece:
                raise AssertionError(f"{len(data)} of {count} bytes, then the peer's end: {self.ending}")
            data += piece
        return data

    def read_to_end(self, seconds=None):
        """Everything until the peer's end, as Received."""
        digest, length, head = hashlib.sha256(), 0, b""
        while True:
            piece = self.recv(seconds=seconds)
            if not piece:
                return Received(length, head, digest.hexdigest(), self.ending)
            digest.update(piece)
            length += len(piece)
            head += piece[: 4096 - len(head)]

    def silent_for(self, seconds):
        """Whether neither a byte nor an end comes within that time."""
        try:
            self.recv(1, seconds)
        except TimeoutError:
            return True
        return False

    def finish(self):
        """Ends our direction in order and leaves the other one open."""
        self.sock.shutdown(socket.SHUT_WR)

    def cut(self):
        """Sends a bare FIN: for plain bytes an orderly end, for TLS a truncation."""
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self):
        """Ends both directions with an RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def close(self):
        """Closes the socket and nothing more."""
        self.sock.close()

    def local_address(self):
        host, port = self.sock.getsockname()[:2]
        return f"{host}:{port}"


class TlsStream(PlainStream):
    """One thread may send while another receives."""

    def __init__(self, sock, context, *, server_side=False, server_hostname=None, session=None, patience=15.0):
        super().__init__(sock, patience)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_side, server_hostname=server_hostname, session=session
        )
        self._engine = threading.Lock()  # an SSL object is for one thread at a time
        self._wire = threading.Lock()  # records leave in the order they were made
        self._ahead = []  # plaintext that was read before anyone asked for it
        self.alert = None

    def handshake(self):
        """Completes the handshake; ssl.SSLError for an alert, ConnectionError when the peer ends."""
        while True:
            try:
                with self._engine:
                    self.tls.do_handshake()
                self._flush()
                return self
            except ssl.SSLWantReadError:
                self._flush()
            except ssl.SSLError:
                self._flush()
                raise
            if not self._feed(None):
                raise ConnectionError(f"the peer ended during the handshake: {self.ending or 'FIN'}")

    def start_handshake(self):
        """Sends the first flight only."""
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()

    def _feed(self, seconds):
        data = self._recv_raw(_CHUNK, seconds)
        with self._engine:
            self._incoming.write(data)
        return bool(data)

    def _flush(self):
        with self._wire:
            data = self._outgoing.read()
            if data:
                self.sock.sendall(data)

    def send(self, data):
        view = memoryview(data)
        for start in range(0, len(view), _CHUNK):
            with self._wire:
                with self._engine:
                    self.tls.write(view[start : start + _CHUNK])
                    records = self._outgoing.read()
                self.sock.sendall(records)

    def recv(self, limit=_CHUNK, seconds=None):
        while True:
            try:
                with self._engine:
                    if self._ahead:
                        return self._take_ahead(limit)
                    if self.ending is not None:
                        return b""
                    data = self.tls.read(limit)
                if data:
                    return data
                return self._after_close_notify()
            except ssl.SSLZeroReturnError:
                return self._after_close_notify()
            except ssl.SSLWantReadError:
                if not self._feed(seconds):
                    self.ending = self.ending or TRUNCATED
                    return b""
            except ssl.SSLError as error:
                self.ending, self.alert = ALERT, error.reason
                return b""

    def _take_ahead(self, limit):
        data = self._ahead.pop(0)
        if len(data) > limit:
            self._ahead.insert(0, data[limit:])
        return data[:limit]

    def _after_close_notify(self):
        """A close_notify counts as an orderly end only when a FIN follows it."""
        deadline = time.monotonic() + 3 * PATIENCE
        while time.monotonic() < deadline:
            try:
                if not self._recv_raw(_CHUNK, 3 * PATIENCE):
                    self.ending = self.ending or ORDERLY
                    return b""
            except TimeoutError:
                break
        self.ending = OPEN_AFTER_CLOSE_NOTIFY
        return b""

    def finish(self):
        self.send_close_notify()
        self.sock.shutdown(socket.SHUT_WR)

    def send_close_notify(self):
        with self._engine:
            try:
                while data := self.tls.read(_CHUNK):  # SSL_shutdown fails on unread application data
                    self._ahead.append(data)
            except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
                pass
            try:
                self.tls.unwrap()
            except ssl.SSLWantReadError:
                pass  # ours is written, theirs has not come
        self._flush()


def connect_plain(address, **options):
    """To (host, port), or to a unix socket's path."""
    return PlainStream(_connected(address), **options)


def connect_tls(address, context, name=None, **options):
    """A stream with its handshake done."""
    sock = _connected(address)
    try:
        return TlsStream(sock, context, server_hostname=name, **options).handshake()
    except BaseException:
        sock.close()
        raise


def _connected(address):
    if isinstance(address, str):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(address)
        return sock
    return socket.create_connection(address, timeout=15 * PATIENCE)
