"""One idle timer per session, which any byte in either direction resets (case 22)."""

import socket
import subprocess
import time
import unittest

import modes
from backends import FullBacklog, record_patiently
from harness import PATIENCE, EndToEnd, pause, together
from streams import ORDERLY, connect_plain

DRIPS = 10
IDLE = 3


def drip(stream):
    """One byte a second, longer than the idle timeout in sum; then an orderly end."""
    for _ in range(DRIPS):
        stream.send(b".")
        pause(1, "one byte a second")
    stream.finish()
    return stream.read_to_end(seconds=30)


def flood(stream):
    """Sends until the peer has had enough."""
    try:
        while True:
            stream.send(bytes(65536))
    except (OSError, TimeoutError):
        return "ended"


class IdleTimer(EndToEnd):
    def start(self, scripts):
        """A listener per mode and script, named "mode.script"."""
        listeners, backends = [], {}
        for mode in modes.ALL:
            for name, serve in scripts.items():
                both = f"{mode.name}.{name}"
                backend = self.enterContext(mode.backend(serve, patience=60))
                listeners.append(mode.listener(to=both, name=both, timeouts={"idle": f"{IDLE}s"}))
                backends[both] = mode.upstream(backend.address)
        return self.start_proxy({"listeners": listeners, "backends": backends})

    def test_traffic_one_way_keeps_a_session_alive_and_silence_or_a_stalled_reader_ends_it(self):
        proxy = self.start({"down": drip, "up": record_patiently, "stall": flood, "silence": record_patiently})
        checks = []
        for mode in modes.ALL:
            for check in (self.drips_down, self.drips_up, self.stalled_reader, self.silence):
                checks.append(lambda mode=mode, check=check: self.checked(check, proxy, mode))
        for name, error in together(*checks):
            with self.subTest(name):
                if error is not None:
                    raise error

    def checked(self, check, proxy, mode):
        try:
            check(proxy, mode)
        except BaseException as error:  # one failure must not hide the others
            return f"{mode.name}: {check.__name__}", error
        return f"{mode.name}: {check.__name__}", None

    def drips_down(self, proxy, mode):
        stream = self.opened(mode.connect(proxy, f"{mode.name}.down"))
        self.assertEqual(stream.read_to_end(seconds=30).length, DRIPS)
        stream.finish()
        self.assertEqual(proxy.session(listener=f"{mode.name}.down")["reason"], "finished")

    def drips_up(self, proxy, mode):
        stream = self.opened(mode.connect(proxy, f"{mode.name}.up"))
        for _ in range(DRIPS):
            stream.send(b".")
            pause(1, "one byte a second")
        stream.finish()
        stream.read_to_end()
        self.assertEqual(proxy.session(listener=f"{mode.name}.up")["reason"], "finished")

    def stalled_reader(self, proxy, mode):
        stream = self.opened(mode.connect(proxy, f"{mode.name}.stall"))
        stream.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        line = proxy.session(listener=f"{mode.name}.stall", seconds=9)
        self.assertEqual((line["reason"], line["side"]), ("write_timeout", "client"))

    def silence(self, proxy, mode):
        stream = self.opened(mode.connect(proxy, f"{mode.name}.silence"))
        began = time.monotonic()
        stream.read_to_end(seconds=30)
        self.assertTrue(IDLE - 1 < time.monotonic() - began < IDLE + PATIENCE, "silence ends at the idle timeout")
        line = proxy.session(listener=f"{mode.name}.silence")
        self.assertEqual(line["reason"], "idle_timeout")

    def test_key_updates_without_payload_do_not_keep_a_session_alive(self):
        backend = self.start_backend(record_patiently)
        proxy = self.start_proxy(modes.TERMINATE.configuration(backend.address, timeouts={"idle": "2s"}))
        client = subprocess.Popen(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % proxy.port(), "-tls1_3", "-servername", "x"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        backend.connection(0)
        for _ in range(5):
            if proxy.sessions():
                break
            try:
                client.stdin.write("k\n")
                client.stdin.flush()
            except BrokenPipeError:
                break
            pause(0.8, "one KeyUpdate after another")
        client.stdin.close()
        line = proxy.session()
        self.assertEqual((line["reason"], line["bytes_from_client"]), ("idle_timeout", 0))
        self.assertLess(line["total_ms"], 2000 + 1500 * PATIENCE, "each KeyUpdate began the wait anew")


class OtherDeadlines(EndToEnd):
    def test_a_client_that_never_ends_its_side_is_let_go_after_the_linger_timeout(self):
        backend = self.start_backend(record_patiently)
        configuration = modes.PLAIN.configuration(backend.address, timeouts={"idle": "1s", "linger": "1s"})
        proxy = self.start_proxy(configuration)
        baseline = proxy.descriptors()
        client = self.opened(connect_plain(proxy.address()))
        self.assertEqual(client.read_to_end().ending, ORDERLY)
        self.assertGreater(proxy.descriptors(), baseline)
        self.assertGreater(proxy.session(reason="idle_timeout")["total_ms"], 1900)
        self.assertEqual(proxy.descriptors(), baseline)

    def test_a_handshake_that_stalls_ends_at_its_timeout(self):
        backend = self.start_backend(record_patiently)
        proxy = self.start_proxy(modes.TERMINATE.configuration(backend.address, timeouts={"handshake": "1s"}))
        began = time.monotonic()
        self.opened(connect_plain(proxy.address())).read_to_end()
        self.assertGreater(time.monotonic() - began, 0.8)
        line = proxy.session()
        self.assertEqual((line["reason"], line["side"]), ("handshake_timeout", "client"))
        self.assertEqual(backend.connections, [])

    def test_a_connect_that_stalls_ends_at_its_timeout_and_the_next_server_is_tried(self):
        full, good = self.enterContext(FullBacklog()), self.start_backend(lambda stream: stream.send(b"good"))
        proxy = self.start_proxy({
            "listeners": [modes.PLAIN.listener(timeouts={"connect": "1s"}),
                          modes.PLAIN.listener(to="alone", name="alone", timeouts={"connect": "1s"})],
            "backends": {"back": {"servers": [full.address, {"address": good.address, "backup": True}]},
                         "alone": [full.address]},
        })  # fmt: skip
        client = self.opened(connect_plain(proxy.address()))
        self.assertEqual(client.read_to_end().head, b"good")
        client.finish()
        line = proxy.session(listener="front")
        self.assertEqual((line["tries"], line["server"]), (2, good.address))
        self.opened(connect_plain(proxy.address("alone"))).read_to_end()
        line = proxy.session(listener="alone")
        self.assertEqual((line["reason"], line["side"]), ("connect_timeout", "backend"))

    def test_a_backend_that_stalls_in_its_tls_handshake_ends_at_the_connect_timeout(self):
        backend = self.start_backend(record_patiently)  # never answers a ClientHello
        configuration = modes.TLS_TO_TLS.configuration(backend.address, timeouts={"connect": "1s"})
        proxy = self.start_proxy(configuration)
        modes.TLS_TO_TLS.connect(proxy).read_to_end()
        self.assertEqual(proxy.session()["reason"], "connect_timeout")


if __name__ == "__main__":
    unittest.main()
