"""Sloppy peers and idle states: nothing spins, floods the log or hurts a neighbour (cases 5 and 6)."""

import re
import ssl
import threading
import time
import unittest

import certs
import hellos
import modes
from backends import FullBacklog, echo, record_patiently, stay
from harness import EndToEnd, pause, scaled, until
from streams import ORDERLY, TlsStream, connect_plain, connect_tls


class Pulse:
    """Echoes a few bytes every 10 ms on a connection of its own; remembers the slowest answer."""

    def __init__(self, stream, interval=0.01):
        self.stream, self.interval = stream, interval
        self.slowest, self.beats, self.error = 0.0, 0, None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._end.set()
        self._thread.join()
        self.stream.close()

    def _run(self):
        try:
            while not self._end.wait(self.interval):
                began = time.monotonic()
                self.stream.send(b"tick%06d" % self.beats)
                answer = self.stream.read_exactly(10)
                assert answer == b"tick%06d" % self.beats, answer
                self.slowest = max(self.slowest, time.monotonic() - began)
                self.beats += 1
        except BaseException as error:  # shown by whoever checks the pulse
            self.error = error


class SloppyDisconnects(EndToEnd):
    """Case 5."""

    COUNT = scaled("E2E_SLOPPY", 500, 200)

    def test_raw_closes_cost_one_line_each_at_most_and_never_touch_a_neighbour(self):
        backend, neighbour = self.start_backend(record_patiently), self.start_backend(echo)
        proxy = self.start_proxy({
            "listeners": [modes.TERMINATE.listener(), modes.TERMINATE.listener(to="echo", name="neighbour")],
            "backends": {"back": [backend.address], "echo": [neighbour.address]},
        })  # fmt: skip
        context = certs.client_context()
        good = connect_tls(proxy.address("neighbour"), context, "front.test")
        with Pulse(good) as pulse:
            until(lambda: pulse.beats > 0 or pulse.error, "the echo's backend to be connected")
            baseline, place = proxy.descriptors(), proxy.log_position()
            for _ in range(self.COUNT):
                stream = connect_tls(proxy.address(), context, "front.test")
                stream.send(b"0123456789")
                stream.close()
            for _ in range(self.COUNT):
                stream = connect_plain(proxy.address())
                TlsStream(stream.sock, context, server_hostname="front.test").start_handshake()
                stream.close()
            until(lambda: len(proxy.sessions(listener="front")) == 2 * self.COUNT, "all access lines", 20)
            until(lambda: proxy.descriptors() == baseline, "the descriptors to be back at the baseline", 2)
            self.assertIsNone(pulse.error)
            self.assertGreater(pulse.beats, 10)
        for index in range(self.COUNT):
            self.assertEqual(backend.outcome(index).head, b"0123456789")
        self.assertEqual(len(backend.connections), self.COUNT, "a failed handshake reaches no backend")
        lines = proxy.log(place).splitlines()
        self.assertLessEqual(len(lines), 2 * self.COUNT)
        self.assertFalse([line for line in lines if re.search(r" (error|warn(ing)?) \[", line)])


class IdleStates(EndToEnd):
    """Case 6: in each state CPU is idle, in all four modes at once."""

    def start(self, serve, **more):
        backends = {mode.name: self.enterContext(mode.backend(serve, patience=60)) for mode in modes.ALL}
        return self.start_proxy({**modes.in_all(backends), **more})

    def closed(self, proxy, baseline, count):
        until(lambda: len(proxy.sessions()) >= count, f"{count} access lines", 3)
        until(lambda: proxy.descriptors() == baseline, "the descriptors to be back at the baseline", 2)

    def test_a_connection_that_was_closed_at_once_leaves_nothing(self):
        proxy = self.start(record_patiently)
        baseline = proxy.descriptors()
        for mode in modes.ALL:
            connect_plain(proxy.address(mode.name)).close()
        self.closed(proxy, baseline, 4)
        self.assert_idle(proxy.workers(), "connections have come and gone")

    def test_a_connection_closed_amid_its_hello_leaves_nothing(self):
        proxy = self.start(record_patiently)
        baseline = proxy.descriptors()
        for mode in modes.ALL:
            stream = connect_plain(proxy.address(mode.name))
            stream.send(hellos.HELLO[:60])
            stream.close()
        self.closed(proxy, baseline, 4)
        self.assert_idle(proxy.workers(), "hellos were cut off")

    def test_a_client_that_leaves_while_its_backend_is_connecting_abandons_the_connect(self):
        full = self.enterContext(FullBacklog())
        proxy = self.start_proxy({
            "listeners": [mode.listener(name=mode.name) for mode in modes.ALL],
            "backends": {"back": [full.address]},
        })  # fmt: skip
        baseline = proxy.descriptors()
        pending = [self.opened(modes.PLAIN.connect(proxy, "plain"))]
        pending += [self.opened(modes.TERMINATE.connect(proxy, name)) for name in ("terminate", "tls-to-tls")]
        until(lambda: proxy.descriptors() == baseline + 2 * len(pending), "the connects to be pending", 3)
        self.assert_idle(proxy.workers(), "connects are pending")
        pending[0].close()
        for stream in pending[1:]:
            stream.send_close_notify()
            stream.close()
        self.closed(proxy, baseline, 3)
        for line in proxy.sessions():
            self.assertEqual((line["reason"], line["side"]), ("client_left", "client"))
        self.assert_idle(proxy.workers(), "pending connects were abandoned")

    def test_half_closed_clients_with_a_silent_backend_cost_no_cpu(self):
        def silent(stream):
            stream.read_to_end()
            stay(stream)

        proxy = self.start(silent)
        streams = [self.opened(mode.connect(proxy, mode.name)) for mode in modes.ALL]
        for stream in streams:
            stream.send(b"req\n")
            stream.finish()
        self.assert_idle(proxy.workers(), "clients are half-closed", 5)
        self.assertEqual(proxy.sessions(), [])

    def test_half_closed_backends_with_a_silent_client_cost_no_cpu(self):
        def ends_first(stream):
            stream.send(b"bye")
            stream.finish()
            stay(stream)

        proxy = self.start(ends_first)
        streams = [self.opened(mode.connect(proxy, mode.name)) for mode in modes.ALL]
        for stream in streams:
            self.assertEqual(stream.read_to_end().ending, ORDERLY)
        self.assert_idle(proxy.workers(), "backends are half-closed", 5)
        self.assertEqual(proxy.sessions(), [])

    def test_connections_that_send_nothing_cost_no_cpu(self):
        proxy = self.start(record_patiently)
        for mode in modes.ALL:
            self.opened(connect_plain(proxy.address(mode.name)))
        pause(0.3, "the last of them is accepted before the measurement")
        self.assert_idle(proxy.workers(), "nothing was sent at all")
        self.assert_idle([proxy.pid], "the master has nothing to do", 1)


class Descriptors(EndToEnd):
    """Descriptors return to their baseline after many connections of every aborted shape."""

    COUNT = scaled("E2E_ABORTED", 2000, 300)

    def shapes(self, proxy):
        context = certs.client_context()

        def plain(listener, data, end):
            def run():
                stream = connect_plain(proxy.address(listener))
                if data:
                    stream.send(data)
                getattr(stream, end)()

            return run

        def greeted(listener, name, data, end):
            def run():
                stream = connect_tls(proxy.address(listener), context, name)
                if data:
                    stream.send(data)
                getattr(stream, end)()

            return run

        return {
            "plain, nothing, FIN": plain("plain", b"", "close"),
            "plain, nothing, RST": plain("plain", b"", "reset"),
            "plain, bytes, RST": plain("plain", b"0123456789", "reset"),
            "TLS, nothing, RST": plain("terminate", b"", "reset"),
            "TLS, half a hello, FIN": plain("terminate", hellos.HELLO[:60], "close"),
            "TLS, a hello, RST": plain("terminate", hellos.HELLO, "reset"),
            "TLS, no TLS, FIN": plain("terminate", hellos.HTTP, "close"),
            "TLS, greeted, RST": greeted("terminate", "front.test", b"", "reset"),
            "TLS, bytes, FIN": greeted("terminate", "front.test", b"0123456789", "close"),
            "TLS to TLS, a hello, FIN": plain("tls-to-tls", hellos.HELLO, "close"),
            "passthrough, half a hello, RST": plain("passthrough", hellos.HELLO[:60], "reset"),
            "passthrough, a hello, FIN": plain("passthrough", hellos.HELLO, "close"),
            "passthrough, a hello, RST": plain("passthrough", hellos.HELLO, "reset"),
        }

    def test_every_aborted_shape_gives_back_its_descriptors(self):
        sinks = {}
        for mode in modes.ALL:
            sinks[mode.name] = self.start_backend(record_patiently)
        proxy = self.start_proxy({**modes.in_all(sinks), "workers": 2})
        total = 0
        baseline = proxy.descriptors()
        workers = proxy.workers()
        for shape, run in self.shapes(proxy).items():
            count = self.COUNT if not shape.startswith(("TLS, greeted", "TLS, bytes")) else self.COUNT // 4
            for _ in range(count):
                try:
                    run()
                except (ConnectionError, ssl.SSLError):
                    pass  # the proxy may be quicker to end than the shape is to send
            total += count
            with self.subTest(shape=shape):
                # The backend answers every one of them first, and is slower than the proxy.
                seconds = 5 * max(1, self.COUNT / 2000)
                until(lambda: proxy.descriptors() == baseline, "the descriptors to be back at the baseline", seconds)
        until(lambda: proxy.access_file.read_bytes().count(b"\n") == total, "one access line per connection", 10)
        self.assertEqual(proxy.workers(), workers)


if __name__ == "__main__":
    unittest.main()
