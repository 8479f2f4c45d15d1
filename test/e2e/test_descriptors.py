"""Running out of descriptors is weather, not a fault: no spin, no flood, quick recovery (case 24)."""

import os
import resource
import unittest

import modes
from backends import echo, record_patiently
from harness import PATIENCE, EndToEnd, pause, until
from proxy import cpu_ticks
from streams import connect_plain
from test_events import Pulse


class AcceptStorm(EndToEnd):
    LIMIT, CLIENTS, SECONDS = 64, 200, 10

    def test_without_descriptors_the_worker_stays_calm_and_service_returns(self):
        idle, neighbour = self.start_backend(record_patiently), self.start_backend(echo)
        proxy = self.start_proxy({
            **({"user": "root"} if os.geteuid() == 0 else {}),  # prlimit wants the worker's user to be ours
            "listeners": [modes.PLAIN.listener(), modes.PLAIN.listener(to="echo", name="neighbour")],
            "backends": {"back": [idle.address], "echo": [neighbour.address]},
        })  # fmt: skip
        worker = proxy.worker()
        with Pulse(connect_plain(proxy.address("neighbour"))) as pulse:
            until(lambda: pulse.beats > 2, "the echo to run")
            before = resource.prlimit(worker, resource.RLIMIT_NOFILE)
            resource.prlimit(worker, resource.RLIMIT_NOFILE, (self.LIMIT, before[1]))
            place, ticks = proxy.log_position(), cpu_ticks(worker)
            clients = [self.opened(connect_plain(proxy.address())) for _ in range(self.CLIENTS)]
            pause(self.SECONDS, "200 clients storm a worker with 64 descriptors")
            spent, beats = cpu_ticks(worker) - ticks, pulse.beats
            self.assertLess(spent, 10 * self.SECONDS, "ticks, 10% of one CPU")
            self.assertLessEqual(len(proxy.log(place).splitlines()), self.SECONDS + 1)
            self.assertRegex(proxy.log(place), r"(?i)descriptor|too many open files")
            self.assertIsNone(pulse.error)
            self.assertGreater(beats, 20 * self.SECONDS // PATIENCE)
            for client in clients:
                client.close()
            fresh = self.opened(connect_plain(proxy.address("neighbour")))
            fresh.send(b"hello")
            self.assertEqual(fresh.read_exactly(5, seconds=2 * PATIENCE), b"hello")
            self.assertIsNone(pulse.error)
        for line in proxy.sessions():
            if line["reason"] == "no_descriptor":
                self.assertEqual(line["side"], "proxy")
        self.assertEqual(proxy.workers(), [worker])


if __name__ == "__main__":
    unittest.main()
