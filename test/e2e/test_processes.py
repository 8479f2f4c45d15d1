"""Master and workers: signals, deaths, drains, privileges, and what the service manager hears."""

import json
import os
import pathlib
import pwd
import re
import signal
import socket
import tempfile
import time
import unittest

import certs
import modes
from harness import PATIENCE, EndToEnd, allow_many_descriptors, pause, scaled, until
from proxy import Proxy, run_program, status
from streams import ORDERLY, RESET, connect_plain, connect_tls
from test_events import Pulse


def answering(text, **more):
    """A terminating listener that answers with a text."""
    return {
        "listeners": [modes.TERMINATE.listener(to="answer")],
        "backends": {"answer": {"respond": text}},
        **more,
    }


def mirroring(**more):
    """A terminating listener that echoes."""
    return {
        "listeners": [modes.TERMINATE.listener(to="mirror")],
        "backends": {"mirror": {"echo": True}},
        **more,
    }


class IdleSessions(EndToEnd):
    COUNT = scaled("E2E_IDLE_SESSIONS", 2000, 500)

    def test_a_reload_keeps_workers_and_sessions_and_new_sessions_follow_new_rules(self):
        allow_many_descriptors()
        proxy = self.start_proxy(mirroring(workers=2))
        workers, context = proxy.workers(), certs.client_context()
        streams = []
        for _ in range(self.COUNT):
            streams.append(self.opened(connect_tls(proxy.address(), context, "front.test")))
        broken = '{"listeners": [\n  {"nmae": "front"}]}'
        said = proxy.reload_refused(broken)
        self.assertRegex(said, rf"{re.escape(str(proxy.file))}:2:\d+: error: .*name")
        proxy.reload(answering("new rules", workers=2))
        self.assertEqual(proxy.workers(), workers)
        for stream in streams:
            stream.send(b"alive?")
        for stream in streams:
            self.assertEqual(stream.read_exactly(6), b"alive?")
        for _ in range(10):
            stream = self.opened(connect_tls(proxy.address(), context, "front.test"))
            self.assertEqual(stream.read_to_end().head, b"new rules")
        self.assertEqual(proxy.sessions(route="mirror"), [])


class WorkerDeath(EndToEnd):
    def test_a_killed_workers_sessions_end_others_notice_nothing_and_a_new_one_serves(self):
        proxy = self.start_proxy(mirroring(workers=2))
        context = certs.client_context()
        pulses = [Pulse(connect_tls(proxy.address(), context, "front.test")) for _ in range(24)]
        for pulse in pulses:
            self.enterContext(pulse)
        until(lambda: all(pulse.beats > 1 for pulse in pulses), "all echoes to run")
        victim, survivor = proxy.workers()
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        until(lambda: victim not in proxy.workers(), "the victim's end", 1)
        until(lambda: len(proxy.workers()) == 2, "a new worker", 1, step=0.002)
        self.assertIn(survivor, proxy.workers())
        for _ in range(20):  # so many that the kernel's choice falls on both workers
            stream = self.opened(connect_tls(proxy.address(), context, "front.test"))
            stream.send(b"hello")
            self.assertEqual(stream.read_exactly(5), b"hello")
        self.assertLess(time.monotonic() - killed, 1.0 * PATIENCE + 0.5)
        dead = [pulse for pulse in pulses if pulse.error is not None]
        alive = [pulse for pulse in pulses if pulse.error is None]
        self.assertTrue(dead and alive, "both workers had sessions")
        for pulse in dead:
            self.assertIn(pulse.stream.ending or "broken", (RESET, "truncated", "broken"))
        beats = [pulse.beats for pulse in alive]
        until(lambda: all(pulse.beats > before for pulse, before in zip(alive, beats)), "the others to go on")
        self.assertFalse([pulse.error for pulse in alive if pulse.error])
        self.assertRegex(proxy.log(), rf"(?i)worker.*{victim}.*(killed|signal)|(killed|signal).*{victim}")

    def test_a_worker_that_dies_again_and_again_is_replaced_with_growing_pauses_and_service_returns(self):
        proxy = self.start_proxy(answering("here", workers=1))
        for _ in range(3):
            victim = until(proxy.workers, "a worker", 20)[0]
            os.kill(victim, signal.SIGKILL)
            until(lambda: victim not in proxy.workers(), "its end", 1)
        until(proxy.workers, "the successor", 30)
        stream = connect_tls(proxy.address(), certs.client_context(), "front.test")
        self.assertEqual(self.opened(stream).read_to_end().head, b"here")

    def test_the_workers_end_with_their_master(self):
        proxy = Proxy(answering("here", workers=2))
        self.addCleanup(proxy.discard)
        proxy.start()
        workers = proxy.workers()
        proxy.process.kill()
        proxy.process.wait()
        until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in workers), "the workers' end", 5)


class Ending(EndToEnd):
    def session(self, proxy):
        stream = self.opened(connect_tls(proxy.address(), certs.client_context(), "front.test"))
        stream.send(b"ping")
        self.assertEqual(stream.read_exactly(4), b"ping")
        return stream

    def assert_refuses(self, address):
        def refused():
            try:
                connect_plain(address).close()
            except ConnectionRefusedError:
                return True
            return False

        until(refused, "new connections to be refused", 5)

    def test_a_graceful_quit_lets_sessions_end_and_takes_no_new_ones(self):
        proxy = self.start_proxy(mirroring(workers=2))
        stream, address = self.session(proxy), proxy.address()
        proxy.signal(signal.SIGQUIT)
        self.assert_refuses(address)
        stream.send(b"still here")
        self.assertEqual(stream.read_exactly(10), b"still here")
        self.assertIsNone(proxy.process.poll())
        stream.finish()
        self.assertEqual(stream.read_to_end().ending, ORDERLY)
        self.assertEqual(proxy.wait_exit(5), 0)
        self.assertEqual(proxy.session(tls="TLSv1.3")["reason"], "finished")

    def test_a_graceful_quit_ends_what_is_left_at_the_drain_limit_in_order(self):
        proxy = self.start_proxy(mirroring(drain="2s"))
        stream = self.session(proxy)
        began = time.monotonic()
        proxy.signal(signal.SIGQUIT)
        self.assertEqual(stream.read_to_end().ending, ORDERLY)
        self.assertGreater(time.monotonic() - began, 1.5)
        stream.finish()
        self.assertEqual(proxy.wait_exit(10), 0)
        self.assertEqual(proxy.sessions()[0]["reason"], "drain")

    def test_a_fast_stop_ends_everything_at_once(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            proxy = self.start_proxy(mirroring(workers=2))
            stream = self.session(proxy)
            began = time.monotonic()
            proxy.signal(number)
            self.assertEqual(proxy.wait_exit(5), 0)
            self.assertLess(time.monotonic() - began, 3 * PATIENCE)
            self.assertNotEqual(stream.read_to_end().ending, None)
            self.assertEqual(proxy.sessions()[0]["reason"], "stopped")

    def test_a_fast_stop_cuts_a_graceful_one_short(self):
        proxy = self.start_proxy(mirroring())
        self.session(proxy)
        address = proxy.address()
        proxy.signal(signal.SIGQUIT)
        self.assert_refuses(address)
        proxy.signal(signal.SIGTERM)
        self.assertEqual(proxy.wait_exit(5), 0)


class ServiceManager(EndToEnd):
    def messages(self, server):
        """What has come so far, as lines."""
        while True:
            try:
                self.heard += server.recv(65536).decode().splitlines()
            except BlockingIOError:
                return self.heard

    def test_start_life_reload_and_stop_are_notified(self):
        self.heard = []
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-"))
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
            server.bind(f"{folder}/notify")
            server.setblocking(False)
            environment = {"NOTIFY_SOCKET": f"{folder}/notify", "WATCHDOG_USEC": "1000000"}
            proxy = self.start_proxy(answering("here"), environment=environment)
            until(lambda: "READY=1" in self.messages(server), "READY=1")
            self.heard = []
            proxy.reload()
            until(lambda: "READY=1" in self.messages(server), "READY=1 after the reload")
            self.assertIn("RELOADING=1", self.heard)
            self.assertLess(self.heard.index("RELOADING=1"), self.heard.index("READY=1"))
            self.heard = []
            until(lambda: self.messages(server).count("WATCHDOG=1") >= 2, "the watchdog to be fed", 3)
            proxy.reload_refused("nonsense: 1\n")
            until(lambda: "READY=1" in self.messages(server), "READY=1 after a refused reload")
            proxy.signal(signal.SIGTERM)
            until(lambda: "STOPPING=1" in self.messages(server), "STOPPING=1")
            self.assertEqual(proxy.wait_exit(), 0)

    def test_named_sockets_are_taken_from_the_service_manager(self):
        with socket.create_server(("127.0.0.1", 0)) as tls, socket.create_server(("127.0.0.1", 0)) as plain:
            configuration = {
                "listeners": [
                    {**modes.TERMINATE.listener(to="tls", name="tls"), "bind": "systemd:tls.socket"},
                    {"name": "plain", "bind": "systemd:plain.socket", "to": "plain"},
                ],
                "backends": {"tls": {"respond": "over TLS"}, "plain": {"respond": "plain"}},
            }
            proxy = self.start_proxy(configuration, sockets={"tls.socket": tls, "plain.socket": plain})
            context = certs.client_context()
            stream = self.opened(connect_tls(tls.getsockname(), context, "front.test"))
            self.assertEqual(stream.read_to_end().head, b"over TLS")
            stream = self.opened(connect_plain(plain.getsockname()))
            self.assertEqual(stream.read_to_end().head, b"plain")
            proxy.reload()
            stream = self.opened(connect_plain(plain.getsockname()))
            self.assertEqual(stream.read_to_end().head, b"plain")


class Privileges(EndToEnd):
    @unittest.skipUnless(os.geteuid() == 0, "only root has privileges to drop")
    def test_workers_have_neither_user_nor_capabilities_of_root(self):
        proxy = self.start_proxy(answering("here", workers=2))
        nobody = pwd.getpwnam("nobody")
        for pid in proxy.workers():
            self.assertEqual(status(pid, "Uid").split(), [str(nobody.pw_uid)] * 4)
            self.assertEqual(status(pid, "Gid").split(), [str(nobody.pw_gid)] * 4)
            self.assertLessEqual(set(status(pid, "Groups").split()), {str(nobody.pw_gid)})
            self.assertEqual(status(pid, "NoNewPrivs"), "1")
            for kind in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
                self.assertEqual(int(status(pid, kind), 16), 0, kind)

    @unittest.skipUnless(os.geteuid() == 0, "only root has privileges to drop")
    def test_root_without_a_user_is_refused_and_told_what_to_set(self):
        listener = {"name": "a", "bind": "127.0.0.1:0", "to": "b"}
        proxy = Proxy(json.dumps({"listeners": [listener], "backends": {"b": {"echo": True}}}))
        self.addCleanup(proxy.discard)
        proxy.launch()
        self.assertEqual(proxy.wait_exit(), 1)
        self.assertRegex(proxy.log(), r"error.*\buser\b")

    @unittest.skipUnless(os.geteuid() == 0, "only root has a choice of users")
    def test_an_unknown_user_is_an_error_that_names_it(self):
        proxy = Proxy(answering("here", user="no-such-user"))
        self.addCleanup(proxy.discard)
        proxy.launch()
        self.assertEqual(proxy.wait_exit(), 1)
        self.assertRegex(proxy.log(), r"error.*no-such-user")

    @unittest.skipUnless(os.geteuid() == 0, "only root can make a file that the workers cannot read")
    def test_workers_need_no_file_access_for_certificates_and_logs(self):
        proxy = Proxy(answering("here", workers=2))
        self.started.append(proxy)
        self.addCleanup(proxy.stop)
        proxy.folder.chmod(0o700)
        proxy.start()
        for _ in range(8):
            stream = self.opened(connect_tls(proxy.address(), certs.client_context(), "front.test"))
            self.assertEqual(stream.read_to_end().head, b"here")
        proxy.reload()
        victim = proxy.workers()[0]
        os.kill(victim, signal.SIGKILL)
        until(lambda: victim not in proxy.workers() and len(proxy.workers()) == 2, "a new worker")
        for _ in range(8):
            stream = self.opened(connect_tls(proxy.address(), certs.client_context(), "front.test"))
            self.assertEqual(stream.read_to_end().head, b"here")


class LogsAndSignals(EndToEnd):
    def test_usr1_reopens_both_logs_after_a_rename_and_loses_no_line(self):
        proxy = self.start_proxy(answering("here", log={"path": "error.log"}, workers=2))
        error_file = proxy.folder / "error.log"
        self.visit(proxy, 3)
        until(lambda: len(proxy.sessions()) == 3, "three lines")
        proxy.access_file.rename(proxy.folder / "access.1")
        error_file.rename(proxy.folder / "error.1")
        proxy.signal(signal.SIGUSR1)
        until(lambda: proxy.access_file.exists() and error_file.exists(), "new files")
        pause(0.2, "the workers take their new descriptors")
        self.visit(proxy, 8)
        until(lambda: len(proxy.sessions()) == 8, "eight lines in the new file")
        self.assertEqual((proxy.folder / "access.1").read_text().count("\n"), 3)

    def visit(self, proxy, count):
        port = self.port(proxy)
        for _ in range(count):
            stream = self.opened(connect_tls(("127.0.0.1", port), certs.client_context(), "front.test"))
            self.assertEqual(stream.read_to_end().head, b"here")
            stream.finish()

    def port(self, proxy):
        """From the error log, which is a file here."""
        texts = [path.read_text() for path in sorted(proxy.folder.glob("error.*"))]
        return int(re.search(r"listening on \S+:(\d+) ", "".join(texts)).group(1))

    def test_the_pid_file_names_the_master_and_goes_with_it(self):
        proxy = self.start_proxy(answering("here", pid_file="proxy.pid"))
        pid_file = proxy.folder / "proxy.pid"
        self.assertEqual(pid_file.read_text(), f"{proxy.pid}\n")
        proxy.signal(signal.SIGTERM)
        self.assertEqual(proxy.wait_exit(), 0)
        self.assertFalse(pid_file.exists())

    def test_each_signal_can_be_sent_by_its_name(self):
        proxy = self.start_proxy(answering("here", pid_file="proxy.pid"))
        place = proxy.log_position()
        self.send(proxy, "reload")
        proxy.wait_log("generation 2 is live", place)
        proxy.access_file.rename(proxy.folder / "access.1")
        self.send(proxy, "reopen")
        until(proxy.access_file.exists, "the new access log")
        self.send(proxy, "quit")
        self.assertEqual(proxy.wait_exit(), 0)
        proxy = self.start_proxy(answering("here", pid_file="proxy.pid"))
        self.send(proxy, "stop")
        self.assertEqual(proxy.wait_exit(), 0)
        done = run_program("-c", proxy.file, "-s", "stop")
        self.assertEqual(done.returncode, 1, "nobody to signal")

    def send(self, proxy, name):
        done = run_program("-c", proxy.file, "-s", name)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_log_lines_have_time_level_and_process(self):
        proxy = self.start_proxy(answering("here"))
        time_form = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d"
        form = rf"^{time_form} (debug|info|warn|error) \[(master|worker \d+)\] "
        for line in proxy.log().splitlines():
            self.assertRegex(line, form)


if __name__ == "__main__":
    unittest.main()
