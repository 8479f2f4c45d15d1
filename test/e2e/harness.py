"""What every end-to-end test shares: waiting, scaling to the build, and the base test case.

Nothing here sleeps in the hope that something has happened: `until` waits for a condition, and
`pause` is for the cases whose stimulus is time itself.
"""

import os
import resource
import sys
import threading
import time
import unittest

BINARY = os.environ.get("TLSPROXY", "")


def _is_sanitized():
    if "TLSPROXY_SANITIZED" in os.environ:
        return os.environ["TLSPROXY_SANITIZED"] not in ("", "0")
    try:
        with open(BINARY, "rb") as program:
            return b"__asan_init" in program.read()
    except OSError:
        return False


SANITIZED = _is_sanitized()
PATIENCE = 3 if SANITIZED else 1  # factor on how long to wait for what should be quick


def scaled(name, usual, sanitized):
    """A count or size: from the environment when set there, else what suits the build."""
    return int(os.environ.get(name, sanitized if SANITIZED else usual))


def until(condition, what, seconds=10.0, step=0.01):
    """Polls until condition() is truthy and returns that value; an AssertionError says what never came."""
    deadline = time.monotonic() + seconds * PATIENCE
    waiter = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds * PATIENCE:g} s for {what() if callable(what) else what}")
        waiter.wait(step)


def pause(seconds, why):
    """Lets time pass because the passing of time is what is tested; `why` is for the reader."""
    assert why
    threading.Event().wait(seconds)


def together(*calls):
    """Runs the calls at once, each in a thread; returns their results or raises the first error."""
    results, errors = [None] * len(calls), []

    def run(place, call):
        try:
            results[place] = call()
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def allow_many_descriptors():
    """Raises this process's soft limit; the proxies it starts inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class EndToEnd(unittest.TestCase):
    """Starts proxies and backends that end with the test, and shows the proxies' logs when it fails."""

    longMessage = True

    def run(self, result=None):
        self.started = []
        before = self._failures(result)
        outcome = super().run(result)
        if result is not None and self._failures(result) > before:
            for proxy in self.started:
                print(f"--- log of the proxy in {self.id()}:\n{proxy.log_tail()}---", file=sys.stderr)
        return outcome

    @staticmethod
    def _failures(result):
        return len(result.failures) + len(result.errors) if result is not None else 0

    def setUp(self):
        if not os.access(BINARY, os.X_OK):
            self.fail("the environment variable TLSPROXY must name the program under test")

    def start_proxy(self, configuration, **options):
        """A running proxy; at the end of the test it is stopped and must have ended well."""
        from proxy import Proxy

        proxy = Proxy(configuration, **options)
        self.started.append(proxy)
        self.addCleanup(proxy.stop)
        proxy.start()
        return proxy

    def start_backend(self, serve, **options):
        """A running backends.Backend."""
        from backends import Backend

        return self.enterContext(Backend(serve, **options))

    def opened(self, stream):
        """The stream, closed at the end of the test at the latest."""
        self.addCleanup(stream.close)
        return stream

    def assert_idle(self, pids, during, seconds=3.0):
        """Fewer than 5 ticks of CPU per process in 3 s (fields 14 and 15 of /proc/PID/stat)."""
        from proxy import cpu_ticks

        before = {pid: cpu_ticks(pid) for pid in pids}
        pause(seconds, f"CPU is measured while {during}")
        for pid in pids:
            spent = cpu_ticks(pid) - before[pid]
            self.assertLess(spent, 5, f"ticks of process {pid} in {seconds:g} s while {during}")
