"""tlsproxy-load against tlsproxy-backend, and against servers that misbehave: what it measures and what it notices."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../test/e2e"))

from proxy import Proxy  # noqa: E402

LOAD = os.environ["TLSPROXY_LOAD"]
BACKEND = os.environ["TLSPROXY_BACKEND"]
SHORT = ["--seconds", "0.4", "--warmup", "0.1"]


class Backend:
    """A tlsproxy-backend; `counts` after the end."""

    def __init__(self, mode, *options):
        self.process = subprocess.Popen([BACKEND, "--listen", "127.0.0.1:0", "--mode", mode, *options],
                                        stdout=subprocess.PIPE, text=True)
        self.address = json.loads(self.process.stdout.readline())["listening"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        output, _ = self.process.communicate(timeout=10)
        self.counts = json.loads(output)


class Server:
    """Calls `serve` with each connection."""

    def __init__(self, serve):
        self.serve = serve
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def accept(self):
        try:
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self.guarded, args=(connection,), daemon=True).start()
        except OSError:
            return

    def guarded(self, connection):
        with connection:
            try:
                self.serve(connection)
            except OSError:
                return


def unused_address():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return "127.0.0.1:%d" % listener.getsockname()[1]


def start(address, mode, *options, **popen):
    popen.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen([LOAD, "--connect", address, "--mode", mode, *options], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)


def finish(process, status=0):
    with process:
        process.wait(timeout=30)
        output, complaints = process.stdout.read(), process.stderr.read()
    if process.returncode != status:
        raise AssertionError(f"status {process.returncode}: {complaints}")
    return json.loads(output.splitlines()[-1])


def load(address, mode, *options, status=0):
    return finish(start(address, mode, *SHORT, *options), status)


def causes(result):
    return {cause for cause, count in result["failures"].items() if count}


class Measures(unittest.TestCase):
    def test_bulk_gets_back_every_byte_of_every_size(self):
        for payload in (1, 7, 8, 15, 16, 100, 65536, 3 << 20):
            with self.subTest(payload=payload), Backend("echo") as backend:
                result = load(backend.address, "bulk", "--connections", "3", "--payload", str(payload))
                self.assertEqual(result["failed"], 0)
                self.assertGreater(result["operations"], 0)
                self.assertEqual(result["latency_us"]["count"], result["operations"])
                self.assertAlmostEqual(result["bytes"], result["operations"] * payload, delta=4 * payload)

    def test_the_sink_acknowledges_what_is_sent_up(self):
        with Backend("sink") as backend:
            result = load(backend.address, "up", "--connections", "2", "--payload", "10000")
        self.assertEqual(result["failed"], 0)
        self.assertGreater(result["bytes"], 1 << 20)
        self.assertAlmostEqual(result["bytes"], result["bytes_sent"], delta=result["bytes_sent"] // 4)
        self.assertGreater(backend.counts["checked"], 0)
        self.assertEqual(backend.counts["mismatches"], 0)

    def test_down_reads_what_the_source_sends(self):
        with Backend("source", "--payload", "10000") as backend:
            result = load(backend.address, "down", "--connections", "2")
        self.assertEqual(result["failed"], 0)
        self.assertGreater(result["operations"], 16)
        self.assertGreater(result["checked"], result["operations"])

    def test_fetch_gets_one_answer_for_each_request(self):
        for size in ("8", "300", "1M"):
            with self.subTest(size=size), Backend("answer", "--answer", size) as backend:
                result = load(backend.address, "fetch", "--connections", "3", "--payload", size)
                self.assertEqual(result["failed"], 0)
                self.assertEqual(result["latency_us"]["count"], result["operations"])
                bytes_each = 1 << 20 if size == "1M" else int(size)
                self.assertAlmostEqual(result["bytes_received"], result["operations"] * bytes_each, delta=4 * bytes_each)
                self.assertAlmostEqual(result["bytes_sent"], result["operations"] * 64, delta=4 * 64)
            self.assertGreater(backend.counts["checked"], 0)
            self.assertEqual(backend.counts["mismatches"], 0)

    def test_an_answer_of_another_length_is_a_mismatch(self):
        with Backend("answer", "--answer", "200") as backend:
            result = load(backend.address, "fetch", "--payload", "100", status=1)
        self.assertEqual(result["failures"]["mismatch"], 1)

    def test_sessions_end_in_order(self):
        with Backend("echo") as backend:
            result = load(backend.address, "handshake", "--connections", "4", "--sources", "3")
        self.assertEqual(result["failed"], 0)
        self.assertEqual(result["resets_at_close"], 0)
        self.assertGreater(result["operations"], 100)
        self.assertLessEqual(backend.counts["failed"], 4)  # those that the end of the run cut off

    def test_a_schedule_keeps_its_rate(self):
        with Backend("echo") as backend:
            for mode, connections in (("rate", "50"), ("message", "10")):
                result = load(backend.address, mode, "--rate", "1000", "--connections", connections, "--seconds", "2")
                self.assertEqual(result["failed"] + result["unfinished"], 0)
                self.assertAlmostEqual(result["operations"], 2000, delta=200)
                self.assertEqual(result["start_delay_us"]["count"], result["operations"])

    def test_idle_holds_until_told_and_then_ticks(self):
        with Backend("echo") as backend:
            process = start(backend.address, "idle", *SHORT, "--connections", "20", "--hold-echo", "--tick",
                            "--seconds", "1", "--announce", stdin=subprocess.PIPE)
            self.assertEqual(process.stdout.readline(), "held 20\n")
            process.stdin.write("go\n")
            process.stdin.flush()
            self.assertEqual(process.stdout.readline(), "measuring\n")
            self.assertEqual(process.stdout.readline(), "measured\n")
            result = finish(process)
        self.assertEqual(result["open"], 20)
        self.assertAlmostEqual(result["operations"], 20, delta=1)
        self.assertEqual(backend.counts["open_most"], 20)

    def test_many_connections_are_opened_without_a_pause(self):
        with Backend("echo") as backend:
            begin = time.monotonic()
            result = load(backend.address, "message", "--connections", "1000", "--think", "100")
        self.assertEqual(result["open"], 1000)
        self.assertLess(time.monotonic() - begin, 5)

    def test_think_time_limits_the_rate(self):
        with Backend("echo") as backend:
            result = load(backend.address, "message", "--connections", "10", "--think", "100", "--seconds", "1")
        self.assertLessEqual(result["operations"], 100)
        self.assertGreater(result["operations"], 50)

    def test_cpu_time_of_another_process_is_that_of_the_window(self):
        with Backend("echo") as backend:
            result = load(backend.address, "bulk", "--watch", str(backend.process.pid), "--watch", str(2**22 - 1))
        self.assertGreater(result["watched"][0]["cpu_seconds"], 0)
        self.assertLess(result["watched"][0]["cpu_seconds"], result["seconds"] * 1.1)
        self.assertIsNone(result["watched"][1]["cpu_seconds"])
        self.assertIsNone(result["watched_cpu_seconds"])


class OverTls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.backends = {"echo": Backend("echo"), "sink": Backend("sink"), "source": Backend("source"),
                        "answer": Backend("answer", "--answer", "100000")}
        tls = {"certificates": [{"self_signed": True}]}
        cls.proxy = Proxy({
            "listeners": [{"name": mode, "bind": "127.0.0.1:0", "tls": tls, "to": mode} for mode in cls.backends],
            "backends": {mode: backend.address for mode, backend in cls.backends.items()},
        })  # fmt: skip
        cls.proxy.start()
        cls.addresses = {mode: "127.0.0.1:%d" % cls.proxy.port(mode) for mode in cls.backends}

    @classmethod
    def tearDownClass(cls):
        cls.proxy.stop()
        for backend in cls.backends.values():
            backend.stop()
            assert backend.counts["mismatches"] == 0

    def check(self, backend, mode, *options):
        result = load(self.addresses[backend], mode, "--tls", *options)
        self.assertEqual(result["failed"], 0)
        self.assertGreater(result["operations"], 10)
        return result

    def test_bulk_of_every_size(self):
        for payload in ("1", "100", "65536", "1M"):
            with self.subTest(payload=payload):
                self.check("echo", "bulk", "--connections", "3", "--payload", payload, "--seconds", "1")

    def test_streams(self):
        for payload in ("1000", "64k"):
            with self.subTest(payload=payload):
                self.check("sink", "up", "--connections", "4", "--payload", payload, "--seconds", "1")
        self.check("source", "down", "--connections", "4")

    def test_answers(self):
        self.check("answer", "fetch", "--connections", "4", "--payload", "100000")

    def test_full_sessions_are_full_and_resumed_ones_resumed(self):
        for version in ("1.2", "1.3"):
            with self.subTest(version=version):
                full = self.check("echo", "handshake", "--connections", "4", "--tls-version", version)
                self.assertEqual(full["handshakes"]["resumed"], 0)
                self.assertAlmostEqual(full["handshakes"]["full"], full["operations"], delta=8)
                resumed = self.check("echo", "resume", "--connections", "4", "--tls-version", version)
                self.assertEqual(resumed["handshakes"]["full"], 0)
                self.assertAlmostEqual(resumed["handshakes"]["resumed"], resumed["operations"], delta=8)

    def test_version_suite_and_group_are_pinned(self):
        facts = self.check("echo", "handshake")["tls"]
        self.assertEqual(facts, {"version": "TLSv1.3", "suite": "TLS_AES_128_GCM_SHA256", "group": "x25519"})
        facts = self.check("echo", "handshake", "--suite", "TLS_AES_256_GCM_SHA384", "--group", "P-256")["tls"]
        self.assertEqual(facts, {"version": "TLSv1.3", "suite": "TLS_AES_256_GCM_SHA384", "group": "secp256r1"})

    def test_schedules_and_held_connections(self):
        self.check("echo", "rate", "--rate", "100", "--resume")
        self.check("echo", "message", "--rate", "500", "--connections", "50")
        self.check("echo", "message", "--think", "10", "--connections", "20")
        self.check("echo", "idle", "--hold-echo", "--tick", "--connections", "50")


class Notices(unittest.TestCase):
    def test_bytes_that_differ(self):
        def corrupt(connection):
            connection.sendall(b"x" * len(connection.recv(100)))

        with Server(corrupt) as server:
            result = load(server.address, "bulk", "--payload", "100", status=1)
        self.assertEqual(causes(result), {"mismatch"})

    def test_more_bytes_than_were_sent(self):
        with Server(lambda connection: connection.sendall(2 * connection.recv(100))) as server:
            result = load(server.address, "bulk", "--payload", "100", status=1)
        self.assertEqual(causes(result), {"mismatch"})

    def test_a_peer_that_leaves(self):
        with Server(lambda connection: connection.recv(1)) as server:
            result = load(server.address, "handshake", status=1)
        self.assertEqual(causes(result), {"closed"})

    def test_a_peer_that_is_not_there(self):
        result = load(unused_address(), "handshake", status=1)
        self.assertEqual(causes(result), {"connect"})
        self.assertEqual(result["operations"], 0)

    def test_a_peer_that_does_not_speak_tls(self):
        with Server(lambda connection: connection.sendall(b"hello")) as server:
            result = load(server.address, "handshake", "--tls", status=1)
        self.assertEqual(causes(result), {"handshake"})

    def test_a_peer_that_does_not_end_its_side(self):
        def linger(connection):
            connection.sendall(connection.recv(1))
            time.sleep(5)

        with Server(linger) as server:
            result = load(server.address, "handshake", "--timeout", "0.2", "--seconds", "2")
        self.assertEqual(causes(result), {"close_timeout"})
        self.assertGreater(result["operations"], 0)

    def test_a_stall_is_in_the_latencies_of_a_schedule(self):
        with Server(lambda connection: connection.recv(1) and time.sleep(5)) as server:
            result = load(server.address, "rate", "--rate", "100", "--connections", "3", "--seconds", "1",
                          "--timeout", "0.5")
        self.assertEqual(result["operations"], 0)
        self.assertAlmostEqual(result["unfinished"], 100, delta=40)
        self.assertEqual(result["latency_us"]["count"], result["unfinished"])
        self.assertGreater(result["latency_us"]["p50"], 400_000)

    def test_a_stall_under_closed_loop(self):
        with Server(lambda connection: time.sleep(5)) as server:
            result = load(server.address, "bulk", "--timeout", "0.3", "--seconds", "5", status=1)
        self.assertEqual(causes(result), {"timeout"})

    def test_a_signal_ends_it_with_its_json(self):
        with Backend("echo") as backend:
            process = start(backend.address, "bulk", "--warmup", "0", "--seconds", "60", "--announce")
            self.assertEqual(process.stdout.readline(), "measuring\n")
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            result = finish(process)
        self.assertTrue(result["interrupted"])
        self.assertGreater(result["operations"], 0)
        self.assertLess(result["seconds"], 30)

    def test_wrong_options(self):
        for options in (["bulk", "--rate", "5"], ["rate"], ["resume"], ["up", "--payload", "1M"], ["nothing"],
                        ["bulk", "--connections", "0"], ["bulk", "--tick"]):
            process = start("127.0.0.1:1", *options)
            output, complaint = process.communicate(timeout=10)
            self.assertEqual((process.returncode, output), (2, ""), options)
            self.assertNotEqual(complaint, "", options)
        for option in (["--suite", "NO_SUCH"], ["--group", "NO_SUCH"]):
            process = start("127.0.0.1:1", "handshake", "--tls", *option)
            self.assertIn("NO_SUCH", process.communicate(timeout=10)[1])
            self.assertEqual(process.returncode, 1)


if __name__ == "__main__":
    unittest.main()
