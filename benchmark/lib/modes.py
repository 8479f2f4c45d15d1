"""The kinds of measurement: what each sends, which points it has, and what its figures mean."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Metric:
    column: str
    title: str
    unit: str
    higher: bool = True  # whether more is better
    per_cpu: bool = False  # of the subject, so that the floor without a proxy has none
    judged: bool = True  # whether being behind in it is reported as such


PER_CPU_MB = Metric("mb_per_cpu_s", "MB per CPU-second of the subject", "MB", per_cpu=True)
WALL_MB = Metric("mb_per_s", "MB per second", "MB", judged=False)
PER_CPU_OPS = Metric("ops_per_cpu_s", "operations per CPU-second of the subject", "", per_cpu=True)
WALL_OPS = Metric("ops_per_s", "operations per second", "", judged=False)
CPU_PER_OP = Metric("cpu_us_per_op", "CPU of the subject per operation", "us", higher=False, per_cpu=True)
# In a closed loop a slow subject gets less to do, so its latency is no comparison: shown, not judged.
LOOP_P50 = Metric("p50_us", "latency in the closed loop, median", "us", higher=False, judged=False)
LOOP_P99 = Metric("p99_us", "latency in the closed loop, 99 of 100", "us", higher=False, judged=False)
# So many connections take the generator to its limit as well; `message` is for latency.
IDLE_P99 = Metric("p99_us", "latency of the messages, 99 of 100", "us", higher=False, judged=False)
P50 = Metric("p50_us", "latency, median", "us", higher=False)
P99 = Metric("p99_us", "latency, 99 of 100", "us", higher=False)
P999 = Metric("p999_us", "latency, 999 of 1000", "us", higher=False)
PRIVATE = Metric("private_kib", "private memory per held connection", "KiB", higher=False, per_cpu=True)
PSS = Metric("pss_kib", "proportional memory per held connection", "KiB", higher=False, per_cpu=True, judged=False)
LEFT = Metric("rss_left", "resident memory after the load, of that before it", "", higher=False, per_cpu=True, judged=False)


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str
    what: str
    x: str  # what a point is
    points: tuple
    connections: tuple
    backend: str
    metrics: tuple
    seconds: float = 3.0
    warmup: float = 1.0
    rounds: int = 8
    latency: bool = False  # whether a busy generator would be taken for a slow subject
    log_x: bool = True
    variants: tuple = ("tls",)

    def load(self, point, connections, options):
        """The generator's options for a point."""
        return _LOAD[self.name](point, connections, options)


def _cross(point, connections, _):
    mode, _, payload = point.partition("-")
    return ["--mode", mode, "--payload", payload, "--connections", connections]


_LOAD = {
    "bulk": lambda point, connections, _: ["--mode", "bulk", "--payload", point, "--connections", connections],
    "up": lambda point, connections, _: ["--mode", "up", "--payload", point, "--connections", connections],
    "down": lambda point, connections, _: ["--mode", "down", "--payload", point, "--connections", connections],
    "handshake": lambda point, connections, _: [
        "--mode", "resume" if point == "resumed" else "handshake", "--connections", connections, "--sources", 16],
    "rate": lambda point, connections, _: [
        "--mode", "rate", "--rate", point, "--connections", connections, "--sources", 16],
    "idle": lambda point, _, __: ["--mode", "idle", "--connections", point, "--hold-echo", "--tick"],
    "message": lambda point, _, options: [
        "--mode", "message", "--connections", point, "--payload", 200, "--rate", options.rate],
    "cross": _cross,
}  # fmt: skip

_BYTES = (PER_CPU_MB, WALL_MB)

MODES = {
    mode.name: mode
    for mode in (
        Mode("bulk", "payloads to an echo backend and back, on persistent connections, as fast as they go",
             "bytes", ("64", "1024", "8192", "65536", "1048576"), (32,), "echo", (*_BYTES, LOOP_P99)),
        Mode("up", "an endless stream from the clients", "bytes", ("65536",), (32,), "sink", _BYTES),
        Mode("down", "an endless stream to the clients", "bytes", ("65536",), (32,), "source", _BYTES),
        Mode("handshake", "new connections, one byte there and back, end; as fast as they go",
             "session", ("full", "resumed"), (32,), "echo", (PER_CPU_OPS, WALL_OPS, LOOP_P50, LOOP_P99), log_x=False),
        Mode("rate", "new connections at random instants, whatever the subject does; latency from the intended start",
             "connections/s", ("250", "500"), (512,), "echo", (P50, P99, P999, CPU_PER_OP), seconds=5, latency=True),
        Mode("idle", "held connections, and one message a second on each",
             "connections", ("1000", "9000"), (0,), "echo", (PRIVATE, PSS, LEFT, CPU_PER_OP, IDLE_P99), rounds=3,
             variants=("tls", "plain")),
        Mode("message", "200 bytes there and back on held connections, at random instants",
             "connections", ("100", "1000", "5000"), (0,), "echo", (P50, P99, P999, CPU_PER_OP), seconds=5,
             warmup=2, latency=True),
        Mode("cross", "an independent generator (wrk, HTTP), and ours beside it",
             "load", ("wrk-64", "fetch-300", "wrk-65536", "fetch-65536", "wrk-1048576",
                      "fetch-1048576"), (32,), "echo",
             (PER_CPU_MB, PER_CPU_OPS), log_x=False),
    )
}  # fmt: skip
