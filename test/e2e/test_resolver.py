"""Servers given by name: followed when they move, kept when DNS fails (case 28)."""

import unittest

import modes
from backends import Backend, echo, identify
from dns import NXDOMAIN, REFUSED, SILENCE, NameServer
from harness import PATIENCE, EndToEnd, pause, until
from streams import connect_plain
from test_events import Pulse

NAME = "be.test"


class NamedServers(EndToEnd):
    def two_homes(self):
        """The same port on two addresses, with a backend that tells which one it is."""
        first = self.start_backend(identify(b"one"), host="127.0.0.2")
        second = self.enterContext(Backend(identify(b"two"), host="127.0.0.3", port=first.port))
        return first, second

    def start(self, answers, port, ttl=1, **resolver):
        server = self.enterContext(NameServer(answers, ttl))
        proxy = self.start_proxy({
            "resolver": {"servers": [server.address], "timeout": "500ms", **resolver},
            "listeners": [modes.PLAIN.listener()],
            "backends": {"back": [f"{NAME}:{port}"]},
        })  # fmt: skip
        return server, proxy

    def who_answers(self, proxy):
        stream = connect_plain(proxy.address())
        try:
            stream.send(b"who?")
            return stream.read_to_end().head
        except (ConnectionError, TimeoutError):
            return b""
        finally:
            stream.close()

    def test_new_sessions_follow_a_name_that_moves_and_old_ones_stay(self):
        first = self.start_backend(echo, host="127.0.0.2")
        self.enterContext(Backend(identify(b"two"), host="127.0.0.3", port=first.port))
        server, proxy = self.start({(NAME, "A"): ["127.0.0.2"]}, first.port)
        old = self.opened(connect_plain(proxy.address()))
        old.send(b"ping")
        self.assertEqual(old.read_exactly(4), b"ping")
        server.answers[(NAME, "A")] = ["127.0.0.3"]
        until(lambda: self.answered_two(proxy), "new sessions to follow the name", 5, step=0.2)
        old.send(b"pong")
        self.assertEqual(old.read_exactly(4), b"pong")

    def answered_two(self, proxy):
        stream = connect_plain(proxy.address())
        stream.send(b"two")
        stream.finish()
        answer = stream.read_to_end()
        stream.close()
        server = proxy.sessions()[-1:] or [{}]
        return answer.head == b"two" and server[0].get("server", "").startswith("127.0.0.3:")

    def test_a_dns_failure_keeps_the_last_good_addresses_and_delays_nobody(self):
        first, _ = self.two_homes()
        neighbour = self.start_backend(echo)
        server = self.enterContext(NameServer({(NAME, "A"): ["127.0.0.2"]}))
        proxy = self.start_proxy({
            "resolver": {"servers": [server.address], "timeout": "500ms"},
            "listeners": [modes.PLAIN.listener(), modes.PLAIN.listener(to="echo", name="neighbour")],
            "backends": {"back": [f"{NAME}:{first.port}"], "echo": [neighbour.address]},
        })  # fmt: skip
        self.assertEqual(self.who_answers(proxy), b"one")
        with Pulse(connect_plain(proxy.address("neighbour"))) as pulse:
            for trouble in (REFUSED, NXDOMAIN, SILENCE):
                with self.subTest(trouble=trouble):
                    server.answers.update({(NAME, "A"): trouble, (NAME, "AAAA"): trouble})
                    asked = len(server.queries)
                    until(lambda: len(server.queries) > asked, "the next query", 40)
                    pause(0.7, "the failure, or the query's timeout, has come to the proxy")
                    self.assertEqual(self.who_answers(proxy), b"one")
                    server.answers.update({(NAME, "A"): ["127.0.0.2"], (NAME, "AAAA"): []})
            self.assertIsNone(pulse.error)
            self.assertLess(pulse.slowest, 0.05 * PATIENCE * 2)

    def test_a_name_of_which_only_a_records_answer_is_served(self):
        first, _ = self.two_homes()
        _, proxy = self.start({(NAME, "A"): ["127.0.0.2"], (NAME, "AAAA"): SILENCE}, first.port)
        self.assertEqual(self.who_answers(proxy), b"one")

    def test_a_name_with_a_dead_aaaa_address_is_served_by_the_other(self):
        first, _ = self.two_homes()
        _, proxy = self.start({(NAME, "A"): ["127.0.0.2"], (NAME, "AAAA"): ["::1"]}, first.port)
        for _ in range(4):
            self.assertEqual(self.who_answers(proxy), b"one")

    def test_a_name_that_cannot_be_resolved_at_start_is_retried_until_it_can(self):
        first, _ = self.two_homes()
        server, proxy = self.start({(NAME, "A"): NXDOMAIN, (NAME, "AAAA"): NXDOMAIN}, first.port)
        self.assertEqual(self.who_answers(proxy), b"")
        self.assertEqual(proxy.session()["reason"], "no_backend")
        self.assertRegex(proxy.log(), NAME)
        server.answers.update({(NAME, "A"): ["127.0.0.2"], (NAME, "AAAA"): []})
        until(lambda: self.who_answers(proxy) == b"one", "the name to be served", 10, step=0.2)

    def test_a_name_that_cannot_be_resolved_at_a_reload_does_not_hold_it_up(self):
        first, _ = self.two_homes()
        server, proxy = self.start({(NAME, "A"): ["127.0.0.2"], ("gone.test", "A"): SILENCE}, first.port)
        proxy.reload({
            "resolver": {"servers": [server.address], "timeout": "500ms"},
            "listeners": [modes.PLAIN.listener(), modes.PLAIN.listener(name="gone", to="gone")],
            "backends": {"back": [f"{NAME}:{first.port}"], "gone": ["gone.test:80"]},
        })  # fmt: skip
        self.assertEqual(self.who_answers(proxy), b"one")


if __name__ == "__main__":
    unittest.main()
