"""A reload is a transaction: it happens as a whole or leaves no trace (cases 34 and 36)."""

import os
import pathlib
import shutil
import signal
import socket
import unittest

import certs
import modes
from backends import echo, identify
from harness import SANITIZED, EndToEnd, pause, scaled, until
from proxy import Proxy, descriptors, resident_kib, status
from streams import ORDERLY, connect_plain, connect_tls
from test_events import Pulse


class Transaction(EndToEnd):
    """Case 34, with an echo running throughout."""

    def setUp(self):
        super().setUp()
        self.backend, mirror = self.start_backend(identify(b"back")), self.start_backend(echo)
        self.first, self.second = certs.root().leaf("first.test"), certs.root().leaf("second.test")
        self.configuration = {
            "listeners": [
                {"name": "front", "bind": "127.0.0.1:0", "to": "back",
                 "tls": {"certificates": [{"chain": "site.pem", "key": "site.key"}]}},
                modes.PLAIN.listener(to="mirror", name="mirror"),
            ],
            "backends": {"back": [self.backend.address], "mirror": [mirror.address]},
        }  # fmt: skip
        self.proxy = Proxy(self.configuration)
        self.started.append(self.proxy)
        self.addCleanup(self.proxy.stop)
        self.install(self.first.chain, "site.pem")
        self.install(self.first.key, "site.key")
        self.proxy.start()
        self.pulse = self.enterContext(Pulse(connect_plain(self.proxy.address("mirror"))))

    def tearDown(self):
        self.assertIsNone(self.pulse.error, "the echo was disturbed")
        beats = self.pulse.beats
        until(lambda: self.pulse.beats > beats, "the echo to go on")

    def install(self, source, name):
        shutil.copyfile(source, self.proxy.folder / name)

    def shown(self):
        """The common name of the certificate that a new client is shown; it is served, too."""
        stream = connect_tls(self.proxy.address(), self.context(), "first.test")
        stream.send(b"who?")
        self.assertEqual(stream.read_to_end().head, b"back")
        stream.close()
        return dict(pair[0] for pair in stream.tls.getpeercert()["subject"])["commonName"]

    def context(self):
        context = certs.client_context()
        context.check_hostname = False
        return context

    def assert_refused(self, pattern, configuration=None):
        said = self.proxy.reload_refused(configuration)
        self.assertRegex(said, pattern)
        self.assertNotRegex(said, "(?i)enter .*pass ?phrase")
        self.assertEqual(self.shown(), "first.test")

    def test_a_certificate_without_its_key_is_refused_and_with_it_taken(self):
        self.install(self.second.chain, "site.pem")
        self.assert_refused(r"site\.(pem|key)")
        self.install(self.second.key, "site.key")
        self.proxy.reload()
        self.assertEqual(self.shown(), "second.test")

    def test_files_that_cannot_be_used_are_refused_by_name_and_the_next_good_reload_works(self):
        text = pathlib.Path(self.second.chain).read_text()
        site, key = self.proxy.folder / "site.pem", self.proxy.folder / "site.key"
        site.write_text(text[: len(text) // 2])
        self.assert_refused(r"site\.pem")
        site.write_text("")
        self.assert_refused(r"site\.pem")
        site.unlink()
        self.assert_refused(r"site\.pem.*No such file")
        site.mkdir()
        self.assert_refused(r"site\.pem")
        site.rmdir()
        self.install(self.second.chain, "site.pem")
        certs.openssl("pkey", "-in", self.second.key, "-aes256", "-passout", "pass:x", "-out", key)
        self.assert_refused(r"site\.key")
        self.install(self.second.key, "site.key")
        self.proxy.reload()
        self.assertEqual(self.shown(), "second.test")

    @unittest.skipIf(os.geteuid() == 0, "root reads files of mode 000")
    def test_a_file_that_may_not_be_read_is_refused(self):
        (self.proxy.folder / "site.key").chmod(0)
        self.assert_refused(r"site\.key.*Permission denied")

    def test_a_port_in_use_is_refused_and_no_other_listener_appears(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            extra = [
                {"name": "free", "bind": "127.0.0.1:0", "to": "back"},
                {"name": "taken", "bind": "127.0.0.1:%d" % taken.getsockname()[1], "to": "back"},
            ]
            before = descriptors(self.proxy.pid)
            changed = {**self.configuration, "listeners": self.configuration["listeners"] + extra}
            self.assert_refused(r"(?i)address already in use", changed)
            until(lambda: descriptors(self.proxy.pid) == before, "the master's descriptors to be as before")
        self.proxy.reload()
        stream = self.opened(connect_plain(self.proxy.address("taken")))
        stream.send(b"who?")
        self.assertEqual(stream.read_to_end().head, b"back")

    def test_an_unknown_key_is_refused_with_its_place(self):
        self.assert_refused(
            r"tlsproxy\.yaml:\d+:\d+: error: .*wrokers", {**self.configuration, "wrokers": 2}
        )

    def test_many_refused_reloads_leave_descriptors_and_memory_flat(self):
        count = scaled("E2E_REFUSED_RELOADS", 200, 50)
        processes = [self.proxy.pid, *self.proxy.workers()]
        self.install(self.second.chain, "site.pem")
        for turn in range(count):
            self.proxy.reload_refused()
            if turn == 20:
                before = {pid: (descriptors(pid), resident_kib(pid)) for pid in processes}
        self.assertEqual([self.proxy.pid, *self.proxy.workers()], processes)
        for pid in processes:
            self.assertEqual(descriptors(pid), before[pid][0])
            if not SANITIZED:
                self.assertLess(resident_kib(pid) - before[pid][1], 1024, "KiB of growth")
        self.assertEqual(self.shown(), "first.test")
        self.install(self.second.key, "site.key")
        self.proxy.reload()
        self.assertEqual(self.shown(), "second.test")

    def test_two_reloads_a_millisecond_apart_end_in_the_later_rules(self):
        self.install(self.second.chain, "site.pem")
        self.install(self.second.key, "site.key")
        for _ in range(10):
            place, before = self.proxy.log_position(), self.proxy.generation()
            self.proxy.signal(signal.SIGHUP)
            pause(0.001, "the second signal comes while the first reload is under way")
            self.proxy.signal(signal.SIGHUP)
            until(lambda: self.proxy.generation() > before, "a new generation")
            self.assertNotIn("refused", self.proxy.log(place))
        self.assertEqual(self.shown(), "second.test")

    def test_a_reload_asked_for_during_the_start_is_not_lost_and_hurts_nobody(self):
        early = Proxy({"listeners": [modes.PLAIN.listener()], "backends": {"back": [self.backend.address]}})
        self.started.append(early)
        self.addCleanup(early.stop)
        early.launch()
        hangup = 1 << (signal.SIGHUP - 1)

        def prepared():
            return any(int(status(early.pid, field), 16) & hangup for field in ("SigCgt", "SigBlk"))

        until(prepared, "the master to have taken charge of SIGHUP", step=0.0005)
        early.signal(signal.SIGHUP)
        early.wait_ready()
        early.wait_log(r"generation 2 is live")
        stream = self.opened(connect_plain(early.address()))
        stream.send(b"who?")
        self.assertEqual(stream.read_to_end().head, b"back")


class Generations(EndToEnd):
    """Case 36."""

    def configuration(self, to, **more):
        return {
            "listeners": [modes.TERMINATE.listener(to=to)],
            "backends": {"even": {"respond": "even"}, "odd": {"respond": "odd"}, "mirror": {"echo": True}},
            **more,
        }

    def connect(self, proxy):
        return self.opened(connect_tls(proxy.address(), certs.client_context(), "front.test"))

    def census(self, proxy):
        processes = [proxy.pid, *proxy.workers()]
        return [(pid, status(pid, "Threads"), descriptors(pid)) for pid in processes]

    def test_old_sessions_survive_reloads_and_end_in_order_at_the_drain_limit(self):
        proxy = self.start_proxy(self.configuration("mirror", drain_after_reload="3s"))
        before, streams = self.census(proxy), []
        for turn in range(20):
            stream = self.connect(proxy)
            stream.send(b"ping")
            self.assertEqual(stream.read_exactly(4), b"ping")
            streams.append(stream)
            proxy.reload()
            stream.send(b"pong")
            self.assertEqual(stream.read_exactly(4), b"pong", f"alive after reload {turn}")
        for stream in streams:
            self.assertEqual(stream.read_to_end(seconds=15).ending, ORDERLY)
        until(lambda: len(proxy.sessions(reason="drain", side="proxy")) == 20, "all to have ended by the drain limit")
        until(lambda: self.census(proxy) == before, "processes, threads and descriptors as before")

    def test_many_reloads_leave_memory_flat_and_each_brings_its_rules_at_once(self):
        count = scaled("E2E_RELOADS", 200, 40)
        proxy = self.start_proxy(self.configuration("even"))
        before = self.census(proxy)
        for turn in range(1, count + 1):
            rule = "odd" if turn % 2 else "even"
            proxy.reload(self.configuration(rule))
            if turn % 10 < 2:
                self.assertEqual(self.connect(proxy).read_to_end().head, rule.encode())
            if turn == 20:
                memory = {pid: resident_kib(pid) for pid, _, _ in before}
        until(lambda: self.census(proxy) == before, "processes, threads and descriptors as before")
        if not SANITIZED:
            for pid, kib in memory.items():
                self.assertLess(resident_kib(pid) - kib, 2048, "KiB of growth")

    def test_listeners_and_workers_come_and_go_with_a_reload(self):
        proxy = self.start_proxy(self.configuration("even"))
        (first,) = proxy.workers()
        port = proxy.port()
        more = self.configuration("even", workers=3)
        more["listeners"].append({"name": "second", "bind": "127.0.0.1:0", "to": "odd"})
        proxy.reload(more)
        self.assertIn(first, proxy.workers())
        self.assertEqual(len(proxy.workers()), 3)
        for _ in range(12):
            self.assertEqual(self.opened(connect_plain(proxy.address("second"))).read_to_end().head, b"odd")
            self.assertEqual(self.connect(proxy).read_to_end().head, b"even")
        self.assertEqual(proxy.port(), port, "a port chosen by the kernel stays")
        second = proxy.address("second")
        proxy.reload(self.configuration("odd", workers=1))
        until(lambda: proxy.workers() == [first], "the surplus workers to leave")
        with self.assertRaises(ConnectionRefusedError):
            connect_plain(second)
        for _ in range(12):
            self.assertEqual(self.connect(proxy).read_to_end().head, b"odd")

    def test_no_connection_is_refused_or_dropped_by_reloads(self):
        proxy = self.start_proxy(self.configuration("even", workers=2))
        count, failures = 0, []
        for turn in range(10):
            proxy.signal(signal.SIGHUP)
            for _ in range(20):
                count += 1
                try:
                    if self.connect(proxy).read_to_end().head != b"even":
                        failures.append((turn, "no answer"))
                except OSError as error:
                    failures.append((turn, error))
        self.assertEqual(failures, [], f"of {count} connections")


if __name__ == "__main__":
    unittest.main()
