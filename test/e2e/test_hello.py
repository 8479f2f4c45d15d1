"""What the proxy makes of a connection's first bytes (cases 8, 11, 13 and 20)."""

import hashlib
import time
import unittest

import certs
import hellos
import modes
from backends import identify, record, say
from harness import EndToEnd, pause, until
from streams import ORDERLY, RESET, connect_plain, connect_tls


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def passthrough(routes, **more):
    return {"name": "front", "bind": "127.0.0.1:0", "tls": "passthrough", "routes": routes, **more}


class SplitHello(EndToEnd):
    """Case 8: how TCP cuts the hello changes nothing."""

    def start(self):
        self.backend = self.start_backend(record)
        other = self.start_backend(record)
        return self.start_proxy({
            "listeners": [
                passthrough([{"sni": "example.com", "to": "back"}, {"to": "other"}]),
                modes.TERMINATE.listener(name="terminating"),
            ],
            "backends": {"back": [self.backend.address], "other": [other.address]},
        })  # fmt: skip

    def all_in_two_pieces(self, address, hello=hellos.HELLO):
        """Every two-piece split at once, 20 ms between the pieces."""
        streams = [self.opened(connect_plain(address)) for _ in range(1, len(hello))]
        for cut, stream in enumerate(streams, 1):
            stream.send(hello[:cut])
        pause(0.02, "the pieces of a hello arrive 20 ms apart")
        for cut, stream in enumerate(streams, 1):
            stream.send(hello[cut:])
        return streams

    def test_every_split_reaches_the_route_of_the_whole_hello_with_equal_bytes(self):
        proxy = self.start()
        streams = self.all_in_two_pieces(proxy.address())
        until(lambda: len(self.backend.connections) == len(streams), "every split at the right backend", 5)
        for stream in streams:
            stream.finish()
        for index in range(len(streams)):
            received = self.backend.outcome(index)
            self.assertEqual((received.head, received.ending), (hellos.HELLO, ORDERLY))
        until(lambda: len(proxy.sessions(sni="example.com", route="back")) == len(streams), "their access lines")

    def test_every_split_is_answered_by_a_server_hello(self):
        proxy = self.start()
        for cut, stream in enumerate(self.all_in_two_pieces(proxy.address("terminating")), 1):
            self.assertEqual(stream.read_exactly(3)[:2], b"\x16\x03", f"the answer to a hello cut at {cut}")
            stream.reset()

    def test_a_hello_byte_by_byte_is_the_same_hello(self):
        proxy = self.start()
        for listener in ("front", "terminating"):
            stream = self.opened(connect_plain(proxy.address(listener)))
            for byte in hellos.HELLO:
                stream.send(bytes([byte]))
                pause(0.002, "each byte has a segment of its own")
            if listener == "front":
                stream.finish()
                self.assertEqual(self.backend.outcome().head, hellos.HELLO)
            else:
                self.assertEqual(stream.read_exactly(2), b"\x16\x03")

    def test_a_hello_in_many_records_is_the_same_hello(self):
        proxy = self.start()
        hello = hellos.records(hellos.MESSAGE, *range(1, len(hellos.MESSAGE), 10))
        stream = self.opened(connect_plain(proxy.address()))
        stream.send(hello)
        stream.finish()
        self.assertEqual(self.backend.outcome().head, hello)

    def test_a_large_hello_within_the_limit_is_routed_and_one_beyond_it_is_refused(self):
        proxy = self.start()
        large = hellos.records(hellos.padded(hellos.MESSAGE, 12000))
        stream = self.opened(connect_plain(proxy.address()))
        stream.send(large)
        stream.finish()
        self.assertEqual(self.backend.outcome().sha256, sha256(large))
        stream = self.opened(connect_plain(proxy.address("terminating")))
        too_large = hellos.padded(hellos.MESSAGE, 30000)
        try:
            stream.send(hellos.records(too_large, 16000))
        except (ConnectionResetError, BrokenPipeError):
            pass  # refused before all of it was out
        self.assertIn(stream.read_to_end().ending, (ORDERLY, RESET))
        self.assertEqual(proxy.session(reason="bad_hello")["side"], "client")

    def test_a_hello_paused_in_the_middle_costs_no_cpu_and_no_wait_after_its_last_byte(self):
        proxy = self.start()
        streams = {name: self.opened(connect_plain(proxy.address(name))) for name in ("front", "terminating")}
        for stream in streams.values():
            stream.send(hellos.HELLO[:100])
        self.assert_idle(proxy.workers(), "hellos are incomplete", 5)
        self.assertEqual(self.backend.connections, [])
        for stream in streams.values():
            stream.send(hellos.HELLO[100:])
        completed = time.monotonic()
        self.backend.connection(0)
        self.assertEqual(streams["terminating"].read_exactly(2), b"\x16\x03")
        self.assertLess(time.monotonic() - completed, 1)


class NamesAreCaseBlind(EndToEnd):
    """Case 11."""

    def start(self):
        backends = {name: self.start_backend(record) for name in ("exact", "wildcard", "default")}
        proxy = self.start_proxy({
            "listeners": [passthrough([
                {"sni": "*.Te.COM", "to": "wildcard"},
                {"sni": "Example.COM", "to": "exact"},
                {"to": "default"},
            ])],
            "backends": {name: [backend.address] for name, backend in backends.items()},
        })  # fmt: skip
        return backends, proxy

    def test_routes_match_a_name_in_any_case_and_the_log_shows_one_spelling(self):
        backends, proxy = self.start()
        asked = {
            b"EXAMPLE.Com": ("exact", "example.com"),
            b"example.com": ("exact", "example.com"),
            b"AbCd.TE.coM": ("wildcard", "abcd.te.com"),
            b"abcd.te.com": ("wildcard", "abcd.te.com"),
            b"OTHER.test1": ("default", "other.test1"),
        }
        for spelling, (route, logged) in asked.items():
            with self.subTest(name=spelling):
                before = len(backends[route].connections)
                stream = self.opened(connect_plain(proxy.address()))
                stream.send(hellos.named(spelling))
                stream.finish()
                self.assertEqual(backends[route].outcome(before).head, hellos.named(spelling))
                until(lambda: proxy.sessions(sni=logged, route=route), f"{logged} in the access log")
        self.assertEqual(proxy.log().count("EXAMPLE.Com"), 0)

    def test_a_wildcard_stands_for_exactly_one_label(self):
        backends, proxy = self.start()
        for index, name in enumerate((b"ab.cd.te.com"[1:], b"abcde.te.co", b"abcdete.com", b"te.com.test")):
            stream = self.opened(connect_plain(proxy.address()))
            stream.send(hellos.named(name))
            stream.finish()
            self.assertEqual(backends["default"].outcome(index).head, hellos.named(name))


class NotTls(EndToEnd):
    """Case 13: first bytes that are no TLS hello, and hellos without a name."""

    FIRST_BYTES = {
        "http": hellos.HTTP,
        "connect": hellos.CONNECT,
        "ssh": hellos.SSH,
        "sslv2": hellos.SSLV2,
        "alert": hellos.ALERT_FIRST,
        "warnings": hellos.WARNINGS,
    }

    def test_with_a_fallback_the_bytes_are_passed_unchanged(self):
        backend, named = self.start_backend(record), self.start_backend(record)
        proxy = self.start_proxy({
            "listeners": [passthrough([{"sni": "example.com", "to": "named"}, {"to": "back"}])],
            "backends": {"back": [backend.address], "named": [named.address]},
        })  # fmt: skip
        for index, (kind, data) in enumerate(self.FIRST_BYTES.items()):
            with self.subTest(kind=kind):
                stream = self.opened(connect_plain(proxy.address()))
                stream.send(data)
                stream.finish()
                received = backend.outcome(index)
                self.assertEqual((received.length, received.sha256), (len(data), sha256(data)))
        self.assertEqual(named.connections, [])

    def test_the_verdict_falls_with_the_first_byte_that_shows_it(self):
        backend = self.start_backend(record)
        proxy = self.start_proxy({
            "listeners": [passthrough([{"tls": True, "to": "nowhere"}, {"to": "back"}])],
            "backends": {"back": [backend.address], "nowhere": ["127.0.0.1:9"]},
        })  # fmt: skip
        for index, byte in enumerate((b"G", b"S", b"\x80", b"\x15")):
            stream = self.opened(connect_plain(proxy.address()))
            stream.send(byte)
            backend.connection(index, seconds=2)  # far below the preread timeout

    def test_without_a_fallback_the_connection_is_closed_with_one_short_line(self):
        backend = self.start_backend(record)
        proxy = self.start_proxy({
            "listeners": [
                passthrough([{"sni": "example.com", "to": "back"}]),
                modes.TERMINATE.listener(name="terminating"),
            ],
            "backends": {"back": [backend.address]},
            "log": {"level": "debug"},
        })  # fmt: skip
        for listener in ("front", "terminating"):
            for kind, data in self.FIRST_BYTES.items():
                with self.subTest(kind=kind, listener=listener):
                    place, count = proxy.log_position(), len(proxy.sessions())
                    stream = self.opened(connect_plain(proxy.address(listener)))
                    try:
                        stream.send(data)
                    except (ConnectionResetError, BrokenPipeError):
                        pass
                    self.assertIn(stream.read_to_end(seconds=5).ending, (ORDERLY, RESET))
                    until(lambda: len(proxy.sessions()) > count, "its access line")
                    line = proxy.sessions()[-1]
                    self.assertEqual((line["listener"], line["side"]), (listener, "client"))
                    expected = ("not_tls",) if listener == "terminating" else ("not_tls", "no_route")
                    self.assertIn(line["reason"], expected)
                    self.assertNotIn("HTTP/1.1", proxy.log(place))
                    self.assertLess(len(proxy.log(place)), 2000)
        self.assertEqual(backend.connections, [])

    def test_a_hello_without_extensions_takes_the_default_route_and_logs_no_name(self):
        backend, named = self.start_backend(record), self.start_backend(record)
        proxy = self.start_proxy({
            "listeners": [passthrough([{"sni": ["example.com", "*.test"], "to": "named"}, {"to": "back"}])],
            "backends": {"back": [backend.address], "named": [named.address]},
        })  # fmt: skip
        stream = self.opened(connect_plain(proxy.address()))
        stream.send(hellos.without_extensions())
        stream.finish()
        self.assertEqual(backend.outcome().head, hellos.without_extensions())
        self.assertNotIn("sni", proxy.session(route="back"))

    def test_one_byte_of_a_hello_and_silence_is_held_until_the_preread_timeout_at_no_cost(self):
        backend = self.start_backend(record)
        proxy = self.start_proxy({
            "listeners": [passthrough([{"sni": "example.com", "to": "back"}], timeouts={"preread": "4s"})],
            "backends": {"back": [backend.address]},
        })  # fmt: skip
        stream = self.opened(connect_plain(proxy.address()))
        stream.send(b"\x16")
        began = time.monotonic()
        self.assert_idle(proxy.workers(), "one byte of a hello has come")
        self.assertIn(stream.read_to_end(seconds=10).ending, (ORDERLY, RESET))
        self.assertGreater(time.monotonic() - began, 3.5)
        self.assertEqual(proxy.session()["reason"], "preread_timeout")


class ServerSpeaksFirst(EndToEnd):
    """Case 20: nobody is kept waiting for bytes that no rule needs."""

    BANNER = b"220 hi\r\n"

    def best_time_to_banner(self, connect):
        """The best of five: the machine may be busy, the proxy must not be the one who waits."""
        times = []
        for _ in range(5):
            stream = self.opened(connect())
            began = time.monotonic()
            self.assertEqual(stream.read_exactly(len(self.BANNER)), self.BANNER)
            times.append(time.monotonic() - began)
            stream.close()
        return min(times)

    def test_a_silent_client_gets_the_banner_within_50_ms(self):
        for mode in (modes.PLAIN, modes.TERMINATE, modes.TLS_TO_TLS):
            with self.subTest(mode=mode.name):
                backend = self.enterContext(mode.backend(say(self.BANNER)))
                proxy = self.start_proxy(mode.configuration(backend.address))
                self.assertLess(self.best_time_to_banner(lambda: mode.connect(proxy)), 0.05)

    def test_a_passthrough_listener_whose_routes_test_nothing_does_not_wait_for_a_hello(self):
        backend = self.start_backend(say(self.BANNER))
        proxy = self.start_proxy({
            "listeners": [passthrough([{"to": "back"}])],
            "backends": {"back": [backend.address]},
        })  # fmt: skip
        self.assertLess(self.best_time_to_banner(lambda: connect_plain(proxy.address())), 0.05)

    def test_with_rules_on_names_the_default_route_is_taken_at_the_preread_timeout(self):
        backend, named = self.start_backend(say(self.BANNER)), self.start_backend(record)
        proxy = self.start_proxy({
            "listeners": [passthrough(
                [{"sni": "example.com", "to": "named"}, {"to": "back"}], timeouts={"preread": "1s"})],
            "backends": {"back": [backend.address], "named": [named.address]},
        })  # fmt: skip
        began = time.monotonic()
        stream = self.opened(connect_plain(proxy.address()))
        self.assertEqual(stream.read_exactly(len(self.BANNER)), self.BANNER)
        self.assertTrue(0.8 < time.monotonic() - began < 3, "the banner comes at the timeout")
        stream.send(b"helo\r\n")
        stream.finish()
        self.assertEqual(backend.outcome().head, b"helo\r\n")


class Routes(EndToEnd):
    def test_alpn_and_source_networks_choose_the_route_and_the_first_match_wins(self):
        names = ("mail", "h2", "local", "default")
        backends = {name: self.start_backend(identify(name.encode())) for name in names}
        proxy = self.start_routes(backends)
        for name, alpn, expected in (
            ("mail.front.test", (), b"mail"),
            ("mail.front.test", ("h2",), b"mail"),
            ("front.test", ("http/1.1", "h2"), b"h2"),
            ("www.front.test", (), b"local"),
            ("front.test", (), b"default"),
        ):
            with self.subTest(name=name, alpn=alpn):
                stream = self.opened(connect_tls(proxy.address(), certs.client_context(alpn=alpn), name))
                stream.send(b"who?")
                self.assertEqual(stream.read_to_end().head, expected)

    def start_routes(self, backends):
        listener = modes.TERMINATE.listener()
        del listener["to"]
        listener["tls"]["alpn"] = ["h2", "http/1.1"]
        listener["routes"] = [
            {"sni": "mail.front.test", "to": "mail"},
            {"alpn": ["h2"], "to": "h2"},
            {"source": ["192.0.2.0/24", "2001:db8::/32"], "to": "mail"},
            {"source": "127.0.0.0/8", "sni": "www.front.test", "to": "local"},
            {"to": "default"},
        ]
        return self.start_proxy({
            "listeners": [listener],
            "backends": {name: [backend.address] for name, backend in backends.items()},
        })  # fmt: skip

    def test_without_a_matching_route_the_client_is_closed_with_reason_no_route(self):
        backend = self.start_backend(record)
        listener = modes.TERMINATE.listener()
        del listener["to"]
        listener["routes"] = [{"sni": "www.front.test", "to": "back"}]
        proxy = self.start_proxy({"listeners": [listener], "backends": {"back": [backend.address]}})
        with self.assertRaises((AssertionError, OSError)):
            stream = connect_tls(proxy.address(), certs.client_context(), "front.test")
            self.opened(stream).read_exactly(1)
        self.assertEqual(proxy.session()["reason"], "no_route")
        self.assertEqual(backend.connections, [])


if __name__ == "__main__":
    unittest.main()
