"""benchmark/counters.sh after everything is built: what a session, a round trip and a MiB cost, counted, not timed.

System calls are counted from strace's log, heap use by heapcount.c, instructions by callgrind, each in a run of its own. The
load is one session at a time, in lock step (lockstep.py), so every run counts the same. Calls and heap use are medians over
the sessions or steps, so that what the subject does once a second by itself does not count.
"""

import argparse
import collections
import math
import mmap
import os
import pathlib
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

import lockstep
import machine
import processes
import subjects

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUDGETS = ROOT / "benchmark/budgets.tsv"
WARM = 8  # sessions, round trips or chunks before the first that counts
DATA = {"read", "readv", "recvfrom", "recvmsg", "write", "writev", "sendto", "sendmsg", "splice", "tee", "sendfile"}
READS = {"read", "readv", "recvfrom", "recvmsg"}
CHUNKS_PER_MIB = (1 << 20) // lockstep.CHUNK


class Counters:
    """What was counted, in the order of the table."""

    def __init__(self):
        self.values = {}
        self.notes = []

    def put(self, name, value):
        self.values[name] = value


def patterns(rig, sessions, trips, chunks):
    """(name, how often, what) of all that is counted; each is warmed up by whoever runs it."""
    for tls in (False, True):
        kind = "tls" if tls else "plain"
        yield f"{kind} session", sessions, lambda tls=tls: rig.session(tls)
        if tls:
            ticket = [rig.session(True)]

            def resumed():
                ticket[0] = rig.session(True, ticket[0])

            yield "tls session resumed", sessions, resumed
        pair = rig.open(tls)
        yield f"{kind} round trip", trips, lambda pair=pair: rig.round_trip(*pair, 64)
        yield f"{kind} 64k up", chunks, lambda pair=pair: rig.up(*pair)
        yield f"{kind} 64k down", chunks, lambda pair=pair: rig.down(*pair)
        rig.close(*pair)


class Trace:
    """strace attached to the subject's workers, its log read between the steps."""

    def __init__(self, folder, rig):
        self._log = folder / "strace.log"
        self._log.touch()
        command = ["strace", "-f", "-qq", "-o", self._log]
        for pid in rig.workers:
            command += ["-p", pid]
        self._process = processes.start(command, lambda: None, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1000):
            if all(_traced(pid) for pid in rig.workers):
                break
            if self._process.poll() is not None:
                raise machine.Unusable("strace cannot attach to the subject (ptrace is not permitted here?)")
            lockstep.time.sleep(0.01)
        self._place = 0

    def calls(self):
        """Names of the calls since the last look; an epoll_wait that a signal of ours interrupted is no call of the subject's."""
        with open(self._log) as log:
            log.seek(self._place)
            text = log.read()
            self._place = log.tell()
        names = []
        for line in text.splitlines():
            if "EINTR" in line or "ERESTART" in line:
                continue
            found = re.match(r"(?:\d+\s+)?(?:<\.\.\. )?(\w+)(?:\(| resumed>)", line)
            if found and "<unfinished" not in line:
                names.append(found.group(1))
        return names

    def stop(self):
        processes.stop(self._process)


def what_a_stop_costs(rig, trace):
    """Calls that a SIGSTOP and its SIGCONT bring about by themselves."""
    counted = []
    for _ in range(20):
        trace.calls()
        rig.whole(lambda: None)
        counted.append(len(trace.calls()))
    return statistics.median(counted)


def _traced(pid):
    return not re.search(r"^TracerPid:\s+0$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)


def count_calls(subject, folder, cpus, counters, chosen):
    rig = lockstep.Rig(subject, folder, cpus)
    trace = Trace(folder, rig)
    try:
        interruption = what_a_stop_costs(rig, trace)
        for name, times, step in patterns(rig, chosen.sessions, 200, CHUNKS_PER_MIB):
            for _ in range(WARM):
                step()
            trace.calls()
            sequences = []
            for _ in range(times):
                step()
                sequences.append(tuple(trace.calls()))
            typical, often = collections.Counter(sequences).most_common(1)[0]

            def median(wanted=None, sequences=sequences):
                return statistics.median(sum(wanted is None or call in wanted for call in sequence) for sequence in sequences)

            if "64k" in name:
                counters.put(f"{name}: reads", median(READS))
                counters.put(f"{name}: other data calls", median(DATA - READS))
            elif "round trip" in name:
                counters.put(f"{name}: data calls", median(DATA))
            counters.put(f"{name}: system calls", median() - (interruption if "64k" in name else 0))
            counters.put(f"{name}: epoll_ctl", median({"epoll_ctl"}))
            counters.notes.append(f"{name} ({often} of {times} alike): {' '.join(typical)}")
        for kind in ("plain", "tls"):
            per_chunk = counters.values[f"{kind} 64k up: system calls"], counters.values[f"{kind} 64k down: system calls"]
            counters.put(f"{kind} MiB relayed: system calls", sum(per_chunk) / 2 * CHUNKS_PER_MIB)
    finally:
        trace.stop()
        rig.stop()


class Heap:
    """The counts that heapcount.c keeps."""

    def __init__(self, folder):
        self.library, self.file = folder / "heapcount.so", folder / "heapcount.counts"
        subprocess.run([os.environ.get("CC", "cc"), "-std=c11", "-O2", "-fPIC", "-shared", "-o", self.library,
                        ROOT / "benchmark/lib/heapcount.c", "-ldl"], check=True)  # fmt: skip
        self.file.write_bytes(bytes(mmap.PAGESIZE))
        self.file.chmod(0o666)
        with open(self.file, "r+b") as file:
            self._page = mmap.mmap(file.fileno(), mmap.PAGESIZE)

    def now(self, pids):
        """Allocations, bytes asked for, bytes in use, of all these processes."""
        lines = [line for line in struct.iter_unpack("6Q", self._page[: len(self._page) // 48 * 48]) if line[0] in pids]
        return sum(line[1] for line in lines), sum(line[2] for line in lines), sum(line[4] - line[5] for line in lines)


    def of_each(self, rig, times, step):
        """Medians of what a step adds: the pool's trimming, once a second, is in few of them."""
        seen = [self.now(rig.workers)]
        for _ in range(times):
            step()
            seen.append(self.now(rig.workers))
        return [statistics.median(after[i] - before[i] for before, after in zip(seen, seen[1:])) for i in range(3)]


def count_heap(subject, folder, cpus, counters, chosen):
    heap = Heap(folder)
    rig = lockstep.Rig(subject, folder, cpus, {"LD_PRELOAD": str(heap.library), "HEAPCOUNT": str(heap.file)})
    try:
        for name, times, step in patterns(rig, chosen.sessions, 200, CHUNKS_PER_MIB):
            for _ in range(WARM):
                step()
            allocations, asked, kept = heap.of_each(rig, times, step)
            scale = CHUNKS_PER_MIB if "64k" in name else 1
            shown = name.replace("64k", "MiB")
            counters.put(f"{shown}: heap allocations", allocations * scale)
            if "session" in name:
                counters.put(f"{shown}: heap bytes asked for", asked)
                counters.put(f"{shown}: heap bytes left behind", kept)
        for tls in (False, True):
            held = []
            kept = heap.of_each(rig, 50, lambda tls=tls, held=held: held.append(rig.open(tls)))[2]
            counters.put(f"{'tls' if tls else 'plain'} session held: heap bytes", kept)
            for pair in held:
                rig.close(*pair)
    finally:
        rig.stop()


def instructions(subject, folder, cpus, load):
    """Executed by the workers from start to end, `load(rig)` between."""
    if shutil.which("valgrind") is None:
        raise machine.Unusable("no program valgrind; apt-get install valgrind")
    place = folder / "callgrind"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    place.chmod(0o777)
    rig = lockstep.Rig(subject, folder, cpus, wrapper=(
        "valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={place}/out.%p"))  # fmt: skip
    workers = rig.workers
    try:
        load(rig)
    finally:
        rig.stop()
    total = 0
    for pid in workers:
        try:
            text = (place / f"out.{pid}").read_text(errors="replace")
        except OSError:
            raise machine.Unusable("callgrind wrote nothing about the worker: it did not end in order") from None
        total += sum(int(count) for count in re.findall(r"^(?:summary|totals):\s+(\d+)", text, re.MULTILINE)[-1:])
    return total


def count_instructions(subject, folder, cpus, counters, chosen):
    """By the difference of two amounts, so that start and stop cancel out."""

    def sessions(tls, again, number):
        def load(rig):
            ticket = rig.session(True) if again else None
            for _ in range(WARM):
                rig.session(tls)
            for _ in range(number):
                fresh = rig.session(tls, ticket)
                ticket = fresh if again else None

        return load

    def chunks(tls, number):
        def load(rig):
            pair = rig.open(tls)
            for _ in range(WARM):
                rig.up(*pair)
                rig.down(*pair)
            for _ in range(number):
                rig.up(*pair)
                rig.down(*pair)
            rig.close(*pair)

        return load

    def difference(make, few, many):
        return (instructions(subject, folder, cpus, make(many)) - instructions(subject, folder, cpus, make(few))) / (many - few)

    few, many = 10, 10 + chosen.sessions // 2
    counters.put("plain session: instructions", difference(lambda n: sessions(False, False, n), few, many))
    counters.put("tls session: instructions", difference(lambda n: sessions(True, False, n), few, many))
    counters.put("tls session resumed: instructions", difference(lambda n: sessions(True, True, n), few, many))
    few, many = CHUNKS_PER_MIB // 2, CHUNKS_PER_MIB // 2 + 4 * CHUNKS_PER_MIB
    for tls in (False, True):
        # A chunk goes up and another down, so that a MiB of chunks is two MiB relayed.
        each = difference(lambda n, tls=tls: chunks(tls, n), few, many)
        counters.put(f"{'tls' if tls else 'plain'} MiB relayed: instructions", each * CHUNKS_PER_MIB / 2)


def budgets():
    """Name to the most it may be."""
    found = {}
    for line in BUDGETS.read_text().splitlines():
        if line and not line.startswith("#"):
            name, limit, *_ = line.split("\t")
            found[name] = float(limit)
    return found


_MARGINS = {"instructions": 1.02, "heap bytes": 1.01}  # what differs a little from one run, or one libc, to the next


def write_budgets(counters):
    """What was counted becomes the most that is allowed."""
    known = budgets()
    for name, value in counters.values.items():
        margin = next((part for kind, part in _MARGINS.items() if kind in name), 1)
        known[name] = math.ceil(value * margin) if margin > 1 else value
    lines = [f"{name}\t{limit:g}" if limit < 1e6 else f"{name}\t{limit:.0f}" for name, limit in known.items()]
    BUDGETS.write_text("# What benchmark/counters.sh counts, and the most that it may be. Calls and allocations are exact;\n"
                       "# instructions have 2 % of room, bytes 1 %. Written by counters.sh --write-budgets.\n"
                       + "\n".join(lines) + "\n")  # fmt: skip


def show(counters, limits):
    """The table; the names of what is over its budget."""
    width = max(map(len, counters.values))
    over = []
    print(f"{'counter':<{width}}  {'counted':>12}  {'budget':>12}")
    for name, value in counters.values.items():
        limit = limits.get(name)
        exceeded = limit is not None and value > limit
        if exceeded:
            over.append(name)
        number = f"{value:,.0f}" if value >= 10000 else f"{value:.2f}"
        allowed = "" if limit is None else f"{limit:,.0f}" if limit >= 10000 else f"{limit:.2f}"
        print(f"{name:<{width}}  {number:>12}  {allowed:>12}{'  OVER' if exceeded else ''}")
    return over


def main():
    parser = argparse.ArgumentParser(
        prog="benchmark/counters.sh",
        description="Counts what sessions, round trips and relayed MiB cost; fails when a budget in benchmark/budgets.tsv is exceeded.")
    parser.add_argument("-k", "--kinds", default="calls heap instructions", help="which of: calls heap instructions")
    parser.add_argument("-s", "--subject", default="tlsproxy", help="for another there are no budgets")
    parser.add_argument("-n", "--sessions", type=int, default=100, help="sessions to count over")
    parser.add_argument("-v", "--verbose", action="store_true", help="the calls of each step in their order as well")
    parser.add_argument("--write-budgets", action="store_true", help="make what is counted the new budgets")
    chosen = parser.parse_args()
    processes.end_in_order()
    kinds = {"calls": count_calls, "heap": count_heap, "instructions": count_instructions}
    counters = Counters()
    try:
        subject = subjects.all_subjects().get(chosen.subject)
        if subject is None or not subject.proxies:
            raise machine.Unusable(f"no such subject: {chosen.subject}")
        if problem := subject.missing():
            raise machine.Unusable(problem)
        subjects.descriptors()
        for kind in chosen.kinds.replace(",", " ").split():
            if kind not in kinds:
                raise machine.Unusable(f"no such kind: {kind}")
            print(f"counting {kind} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="tlsproxy-counters-") as name:
                folder = pathlib.Path(name)
                folder.chmod(0o755)
                try:
                    with machine.Anywhere() as cpus:
                        kinds[kind](subject, folder, cpus, counters, chosen)
                finally:
                    processes.stop_all()
    except machine.Unusable as problem:
        print(f"counters.sh: {problem}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    if chosen.write_budgets and chosen.subject == "tlsproxy":
        write_budgets(counters)
    over = show(counters, budgets() if chosen.subject == "tlsproxy" else {})
    if chosen.verbose:
        print("\n" + "\n\n".join(counters.notes))
    if over:
        print(f"\nover budget: {'; '.join(over)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
