"""benchmark/bench.sh after everything is built: plans the rows, measures them, judges them, writes the folder."""

import argparse
import contextlib
import dataclasses
import datetime
import json
import pathlib
import shutil
import sys
import tempfile
import time

import generator
import machine
import processes
import report
import rows as table
import subjects
from modes import MODES

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIN_HEADROOM = 0.05  # of the generator's CPU, where its own delay would be taken for the subject's
MAX_FOREIGN = 0.10  # of the subject's CPU, used by others
ATTEMPTS = 3


def options(arguments):
    parser = argparse.ArgumentParser(
        prog="benchmark/bench.sh", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Compares tlsproxy with nginx and haproxy. benchmark/README.md tells how, and how to read it.",
        epilog="modes:\n" + "\n".join(f"  {mode.name:<10} {mode.what}" for mode in MODES.values())
        + "\n\nprograms are replaced by the environment: TLSPROXY, TLSPROXY_OLD (adds tlsproxy-old), NGINX, HAPROXY")  # fmt: skip
    parser.add_argument("-m", "--mode", action="append", choices=[*MODES, "all"], help="may be repeated; all is all but cross")
    parser.add_argument("-x", "--points", help='what is varied, as in "64 1024"; with several modes, of each')
    parser.add_argument("-c", "--connections", help='as in "32", or "100 5000": one more thing to vary')
    parser.add_argument("-d", "--seconds", type=float, help="of each measurement")
    parser.add_argument("-R", "--rounds", type=int)
    parser.add_argument("-r", "--rate", type=int, default=5000, help="messages per second over all connections (message)")
    parser.add_argument("-s", "--subjects", help='as in "tlsproxy nginx"; all that fit when missing')
    parser.add_argument("-o", "--output", type=pathlib.Path, help="folder of the results")
    parser.add_argument("--plain", action="store_true", help="plain TCP instead of TLS")
    parser.add_argument("--tls", action="store_true", help="TLS; with --plain both")
    parser.add_argument("--cert", choices=["ecdsa", "rsa"], default="ecdsa")
    parser.add_argument("--quick", action="store_true", help="three rounds of a second: to look, not to decide")
    parser.add_argument("--cross-check", action="store_true", help="the same as -m cross")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    chosen.mode = list(dict.fromkeys(chosen.mode or []))
    if "all" in chosen.mode:
        chosen.mode = [name for name in MODES if name != "cross"]
    if chosen.cross_check and "cross" not in chosen.mode:
        chosen.mode.append("cross")
    if not chosen.mode:
        parser.error("-m MODE is needed")
    return chosen


@dataclasses.dataclass(frozen=True)
class Job:
    """One row that is to be measured."""

    mode: object
    variant: str
    point: str
    connections: int
    round: int
    subject: object

    def backend(self):
        if self.mode.name != "cross":
            return self.mode.backend
        shape, _, size = self.point.partition("-")
        return {"wrk": "http", "fetch": f"answer {size}", "down": "source", "up": "sink", "bulk": "echo"}[shape]

    def title(self):
        many = f", {self.connections} connections" if self.connections else ""
        return f"{self.mode.name} {self.variant} {self.point}{many}: {self.subject.name}"


def choose_subjects(chosen):
    known = subjects.all_subjects()
    names = (chosen.subjects or " ".join(known)).replace(",", " ").split()
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = " (set TLSPROXY_OLD)" if "tlsproxy-old" in unknown else ""
        raise machine.Unusable(f"no such subject: {' '.join(unknown)}{hint}; there are: {' '.join(known)}")
    problems = [problem for name in names if (problem := known[name].missing())]
    if problems:
        raise machine.Unusable("\n".join(problems))
    return [known[name] for name in names]


def seconds_of(job, chosen):
    """The measured window, and the warm-up before it."""
    if chosen.quick:
        return chosen.seconds or 1.0, 0.4
    return chosen.seconds or job.mode.seconds, job.mode.warmup if (chosen.seconds or 9) > 1 else 0.4


def plan(chosen, competitors):
    """Rounds outermost, subjects innermost: what is compared is measured side by side, in every other round reversed."""
    jobs = []
    for name in chosen.mode:
        mode = MODES[name]
        variants = [variant for variant, asked in (("tls", chosen.tls), ("plain", chosen.plain)) if asked] or mode.variants
        points = chosen.points.replace(",", " ").split() if chosen.points else mode.points
        connections = [int(n) for n in chosen.connections.replace(",", " ").split()] if chosen.connections else mode.connections
        for round_ in range(chosen.rounds or (3 if chosen.quick else mode.rounds)):
            for variant in variants:
                for point in points:
                    for count in connections:
                        for subject in reversed(competitors) if round_ % 2 else competitors:
                            if fits(mode, variant, point, subject):
                                jobs.append(Job(mode, variant, point, count, round_, subject))
    return jobs


def fits(mode, variant, point, subject):
    if mode.name == "cross":
        return subject.proxies and (not subject.plain_only or variant == "plain")
    if not subject.proxies:
        return mode.name != "idle" and point != "resumed"
    return variant == "plain" and point != "resumed" or not subject.plain_only and variant == "tls"


class Patience:
    """How much a restless machine may lengthen a run: beyond it rows are marked, no longer repeated."""

    def __init__(self, jobs, chosen):
        planned = sum(sum(seconds_of(job, chosen)) for job in jobs)
        self.repeats = 2 + len(jobs) // (8 if chosen.quick else 2)
        self._total, self._once = (0.15 * planned + 5, 2) if chosen.quick else (0.5 * planned + 30, 20)

    def for_calm(self, waited):
        """Seconds to wait now, when so many have gone already."""
        return max(0, min(self._once, self._total - waited))


class Bench:
    """Everything that lives as long as a run: folder, certificate, ports, backends, the measured rows."""

    def __init__(self, chosen, cpus, probe, work, patience):
        self._chosen, self._cpus, self._probe, self._work = chosen, cpus, probe, work
        self._patience = patience
        self._ports = subjects.Ports()
        self._tls_port, self._plain_port = self._ports.take(), self._ports.take()
        self._certificate = subjects.certificate(work, chosen.cert)
        self._backends = {}
        self.rows = []
        self.repeats = self.waited = 0

    def backend(self, name):
        if name not in self._backends:
            if name == "http":
                nginx = subjects.all_subjects()["nginx"].program
                sizes = {point.partition("-")[2] for point in self._points() if point.startswith("wrk-")}
                self._backends[name] = generator.HttpBackend(self._work, nginx, sizes, self._cpus, self._ports)
            else:
                self._backends[name] = generator.Backend(self._work, self._chosen.build, name, self._cpus, self._ports)
        return self._backends[name]

    def _points(self):
        return self._chosen.points.replace(",", " ").split() if self._chosen.points else MODES["cross"].points

    def try_each(self, competitors):
        """Starts every subject once, so that one that cannot be used is known before anything is measured."""
        for subject in competitors:
            subject.start(self._work, self._cpus, self._tls_port, self._plain_port, self._plain_port, self._certificate).stop()

    def measure(self, job):
        """Until the machine was calm before and after, at most ATTEMPTS times; every attempt is a row."""
        for attempt in range(1, ATTEMPTS + 1):
            asked = time.monotonic()
            before, ratio_before = self._probe.wait_for_calm(self._patience.for_calm(self.waited))
            self.waited += time.monotonic() - asked
            row = {"mode": job.mode.name, "variant": job.variant, "point": job.point, "subject": job.subject.name,
                   "connections": job.connections, "round": job.round + 1, "attempt": attempt, "unix_time": int(time.time())}  # fmt: skip
            broken = []
            try:
                broken += self._once(job, row)
            except generator.Failed as problem:
                broken.append(str(problem))
            after, ratio_after = self._probe.look()
            row |= {"probe_before_us": max(before.values()), "probe_after_us": max(after.values()),
                    "probe_ratio": max(ratio_before, ratio_after), "congestion": machine.CONGESTION.read_text().strip()}  # fmt: skip
            restless = row["probe_ratio"] > machine.PROBE_LIMIT or any("others" in reason for reason in broken)
            if row["probe_ratio"] > machine.PROBE_LIMIT:
                broken.append(f"probe {row['probe_ratio']:.1f} times its best")
            row |= {"valid": "no" if broken else "yes", "why": "; ".join(broken)}
            self.rows.append(row)
            if not restless or attempt == ATTEMPTS or self.repeats >= self._patience.repeats:
                return row
            self.repeats += 1
        raise AssertionError("the last attempt returns")

    def _once(self, job, row):
        """Starts the subject, loads it, fills the row; which rules it breaks."""
        backend = self.backend(job.backend())
        subject = job.subject.start(self._work, self._cpus, self._tls_port, self._plain_port, backend.port, self._certificate)
        try:
            tls = job.variant == "tls" and job.subject.proxies
            port = backend.port if not job.subject.proxies else self._tls_port if tls else self._plain_port
            window = generator.Window(subject, backend, self._cpus)
            if job.mode.name == "cross" and job.point.startswith("wrk-"):
                broken = self._wrk(job, row, window, port, tls)
            else:
                broken = self._load(job, row, window, port, subject, tls)
            row["workers_changed"] = int(not subject.unchanged())
            if row["workers_changed"]:
                broken.append("its processes changed")
        finally:
            subject.stop()
        return broken + judge(job, row)

    def _load(self, job, row, window, port, subject, tls):
        seconds, warmup = seconds_of(job, self._chosen)
        before = subject.memory()
        held = {}

        def measure_memory():
            time.sleep(0.3)  # what the last connections set off comes to rest
            held.update(subject.memory())

        told = generator.run(self._chosen.build, job.mode.load(job.point, job.connections, self._chosen), port, window,
                             subject, self._cpus, seconds, warmup, tls, measure_memory)  # fmt: skip
        if job.mode.name == "idle":
            count = told["open"]
            after = settled(subject, before["rss"])
            row |= {"private_kib": (held["private"] - before["private"]) / max(count, 1),
                    "pss_kib": (held["pss"] - before["pss"]) / max(count, 1), "rss_start_kib": before["rss"],
                    "rss_held_kib": held["rss"], "rss_after_kib": after, "rss_left": after / max(before["rss"], 1)}  # fmt: skip
        generator_cpu = told["cpu"]["user"] + told["cpu"]["system"]
        watched = told["watched_cpu_seconds"] if job.subject.proxies else 0.0
        fill(row, told["seconds"], told["operations"], told["bytes"], watched, window)
        row |= {
            "failed": told["failed"],
            "failures": " ".join(f"{name}={count}" for name, count in told["failures"].items() if count),
            "generator_cpu_s": generator_cpu, "headroom": 1 - (generator_cpu + window.backend) / told["seconds"],
            "ports_opened": told["ports"]["opened"], "ports_range": told["ports"]["range"],
            "time_wait": told["ports"]["time_wait"],
            "full": told["handshakes"]["full"], "resumed": told["handshakes"]["resumed"],
        }  # fmt: skip
        if told["latency_us"]["count"]:
            row |= {f"{name}_us": float(told["latency_us"][name]) for name in ("p50", "p90", "p99", "p999", "max")}
        if told["start_delay_us"]["count"]:
            row["start_delay_p99_us"] = float(told["start_delay_us"]["p99"])
        broken = []
        if watched is None:
            broken.append("a process of the subject ended")
        if told["interrupted"]:
            broken.append("interrupted")
        if told.get("unfinished"):
            broken.append(f"{told['unfinished']} operations never ended")
        if tls:
            spoken = told["tls"] or {}
            row |= {"tls_version": spoken.get("version"), "suite": spoken.get("suite"), "group": spoken.get("group")}
            if spoken.get("version") != "TLSv1.3" or spoken.get("suite") != subjects.SUITE:
                broken.append(f"spoke {spoken.get('version')} {spoken.get('suite')}")
            handshakes = row["full"] + row["resumed"]
            if job.point == "resumed" and row["resumed"] < 0.98 * handshakes:
                broken.append("sessions were not resumed")
            if job.point == "full" and row["resumed"]:
                broken.append("sessions were resumed")
        return broken

    def _wrk(self, job, row, window, port, tls):
        if not tls:
            raise machine.Unusable("the cross-check by wrk is for TLS")
        seconds, warmup = seconds_of(job, self._chosen)
        told = generator.run_wrk(self._work, job.point.partition("-")[2], port, window, self._cpus, seconds + warmup,
                                 job.connections)  # fmt: skip
        fill(row, told["seconds"], told["operations"], told["bytes"], window.subject, window)
        row["failed"] = told["failed"]
        waiting, available = machine.ports()
        row |= {"time_wait": waiting, "ports_range": available}
        return []


def settled(subject, start, seconds=8):
    """Resident KiB after the load has gone: the least within longer than any subject waits for a peer's end."""
    lowest, end = subject.memory()["rss"], time.monotonic() + seconds
    while time.monotonic() < end and lowest > 1.05 * start:
        time.sleep(0.25)
        lowest = min(lowest, subject.memory()["rss"])
    return lowest


def fill(row, seconds, operations, size, cpu, window):
    megabytes = size / 1e6
    row |= {"seconds": seconds, "operations": operations, "bytes": size, "mb_per_s": megabytes / seconds,
            "ops_per_s": operations / seconds, "backend_cpu_s": window.backend}  # fmt: skip
    if window.seconds:
        row["cpu_busy"] = window.busy / window.seconds
    if cpu:
        row |= {"cpu_s": cpu, "mb_per_cpu_s": megabytes / cpu, "ops_per_cpu_s": operations / cpu, "subject_load": cpu / seconds}
        if operations:
            row["cpu_us_per_op"] = cpu / operations * 1e6


def judge(job, row):
    """The rules that hold in every mode."""
    broken = []
    if row.get("failed"):
        broken.append(f"{int(row['failed'])} operations failed: {row.get('failures', '')}")
    if not row.get("operations"):
        broken.append("nothing was done")
    if job.mode.latency and row.get("headroom", 1) < MIN_HEADROOM:
        broken.append("the generator was the limit")
    if job.subject.proxies and row.get("cpu_busy", 0) - row.get("subject_load", 0) > MAX_FOREIGN:
        broken.append("others used the subject's CPU")
    return broken


class Progress:
    """What is measured now, and how long it will take."""

    def __init__(self, jobs, chosen):
        self._jobs, self._begin = jobs, time.monotonic()
        self._rounds = {mode.name: 1 + max(job.round for job in jobs if job.mode is mode) for mode in {job.mode for job in jobs}}
        self._guess = sum(sum(seconds_of(job, chosen)) + 0.6 for job in jobs) / len(jobs)

    def before(self, done):
        job = self._jobs[done]
        spent = time.monotonic() - self._begin
        each = spent / done if done else self._guess
        left = datetime.timedelta(seconds=round(each * (len(self._jobs) - done)))
        line = f"[{done + 1}/{len(self._jobs)}] round {job.round + 1}/{self._rounds[job.mode.name]}, {left} left: {job.title()}"
        print(line, end=" ", file=sys.stderr, flush=True)

    def after(self, job, row, repeats):
        shown = [f"{report.short(row.get(metric.column))} {metric.unit}{metric_suffix(metric)}".strip()
                 for metric in job.mode.metrics if row.get(metric.column) is not None][:2]  # fmt: skip
        mark = "" if row["valid"] == "yes" else f"  INVALID: {row['why']}"
        again = f"  (repeats so far: {repeats})" if row["attempt"] > 1 else ""
        print(f"{', '.join(shown)}{mark}{again}", file=sys.stderr, flush=True)


def metric_suffix(metric):
    return {"mb_per_cpu_s": "/CPU-s", "ops_per_cpu_s": "ops/CPU-s", "mb_per_s": "/s", "ops_per_s": "ops/s",
            "p50_us": " p50", "p99_us": " p99", "p999_us": " p99.9", "cpu_us_per_op": " CPU/op"}.get(metric.column, "")  # fmt: skip


def save(folder, bench, facts):
    table.write(folder / "rows.csv", bench.rows)
    facts["repeats"], facts["seconds_waited_for_calm"] = bench.repeats, round(bench.waited, 1)
    (folder / "provenance.json").write_text(json.dumps(facts, indent=1) + "\n")


def run(chosen, interrupted):
    competitors = choose_subjects(chosen)
    if "cross" in chosen.mode:
        if not shutil.which("wrk"):
            raise machine.Unusable("cross: no program wrk; apt-get install wrk")
        if not chosen.subjects:
            competitors = [subject for subject in competitors if subject.name in ("tlsproxy", "tlsproxy-old", "nginx")
                           or len(chosen.mode) > 1]  # fmt: skip
    jobs = plan(chosen, competitors)
    if not jobs:
        raise machine.Unusable("no subject fits these options")
    limit = subjects.descriptors()
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = chosen.output or ROOT / "build/bench" / f"{stamp}-{'+'.join(chosen.mode)}"
    if (folder / "rows.csv").exists():
        raise machine.Unusable(f"{folder} holds a run already")
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.enter_context(machine.only_one())
        work = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tlsproxy-benchmark-")))
        work.chmod(0o755)
        cpus = stack.enter_context(machine.Cpus())
        congestion = stack.enter_context(machine.congestion_control())
        stack.callback(processes.stop_all)
        probe = machine.Probe(cpus, ROOT / "build/bench/probe.json")
        stack.callback(probe.close)
        probe.wait_for_calm(0)
        facts = machine.provenance(ROOT, chosen.build) | {
            "command": [argument.replace(f"{ROOT}/", "") for argument in sys.argv[1:]],
            "certificate": chosen.cert, "suite": subjects.SUITE, "group": subjects.GROUP,
            "congestion_control": congestion, "descriptors": limit,
            "cpus_used": {"subject": cpus.subject, "generator": cpus.generator, "method": cpus.method},
            "probe_best_us": probe.best, "rate": chosen.rate,
            "subjects": {subject.name: subject.facts() for subject in competitors},
        }  # fmt: skip
        print(f"{len(jobs)} measurements; subject on CPU {cpus.subject} ({cpus.method}), generator and backend on CPU "
              f"{cpus.generator}; congestion control {congestion['during']}; probe at best "
              f"{', '.join(f'{us:.1f} us' for us in probe.best.values())}", file=sys.stderr)  # fmt: skip
        bench = Bench(chosen, cpus, probe, work, Patience(jobs, chosen))
        bench.try_each(competitors)
        progress = Progress(jobs, chosen)
        try:
            for done, job in enumerate(jobs):
                progress.before(done)
                progress.after(job, bench.measure(job), bench.repeats)
                table.write(folder / "rows.csv", bench.rows)
        except KeyboardInterrupt:
            interrupted.append(True)
            print("\ninterrupted: what has been measured is kept", file=sys.stderr)
        facts["probe_best_us"] = probe.best
        save(folder, bench, facts)
    return folder


def main():
    processes.end_in_order()
    chosen = options(sys.argv[1:])
    interrupted = []
    try:
        folder = run(chosen, interrupted)
    except machine.Unusable as problem:
        print(f"bench.sh: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    text = report.write(folder)
    print(text)
    print(f"results: {folder}")
    return 130 if interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
