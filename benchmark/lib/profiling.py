"""benchmark/profile.sh after everything is built: where a subject's time goes under a load of bench.sh's."""

import argparse
import collections
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import counters
import driver
import generator
import machine
import processes
import subjects
from modes import MODES


class Tool:
    """Runs beside the subject over the measured window, in place of bench.sh's own bookkeeping."""

    def __init__(self, command):
        self._command, self._process = command, None
        self.backend = 0.0

    def open(self):
        self._process = processes.start(self._command, lambda: None, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip

    def close(self):
        """Both tools write their file at SIGINT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(60)


def under_load(chosen, subject, mode, cpus, work, tool):
    """The generator's JSON of one run with `tool(pids)` beside it."""
    ports = subjects.Ports()
    tls_port, plain_port = ports.take(), ports.take()
    backend = generator.Backend(work, chosen.build, mode.backend, cpus, ports)
    running = subject.start(work, cpus, tls_port, plain_port, backend.port, subjects.certificate(work, "ecdsa"))
    try:
        return generator.run(chosen.build, mode.load(chosen.point or mode.points[-1], chosen.connections or mode.connections[0], chosen),
                             plain_port if chosen.plain else tls_port, tool(running.pids), running, cpus, chosen.seconds,
                             0.5, not chosen.plain)  # fmt: skip
    finally:
        running.stop()
        backend.stop()


def show_perf(chosen, subject, mode, cpus, work):
    data = work / "perf.data"

    def tool(pids):
        return Tool(["perf", "record", "-q", "-e", "cpu-clock", "-F", 1997, "-o", data, "-p", ",".join(map(str, pids))])

    under_load(chosen, subject, mode, cpus, work, tool)
    told = subprocess.run(["perf", "report", "-i", data, "--stdio", "-q", "--sort", "dso,symbol"], capture_output=True, text=True)
    by_library, by_symbol = collections.Counter(), collections.Counter()
    for line in told.stdout.splitlines():
        if found := re.match(r"\s*([\d.]+)%\s+(\S+)\s+\[(.)\] (.+?)(?:\s+-)*\s*$", line):
            part, library, _, symbol = found.groups()
            library = library.strip("[]")
            by_library[library] += float(part)
            by_symbol[library, "(no symbols)" if symbol.startswith("0x") else symbol] += float(part)
    print("\nCPU time by library (perf, cpu-clock)")
    for library, part in by_library.most_common(12):
        print(f"{part:>8.2f}%  {library}")
    print("\nCPU time by symbol (perf, cpu-clock)")
    for (library, symbol), part in by_symbol.most_common(chosen.lines):
        print(f"{part:>8.2f}%  {symbol}  [{library}]")


def show_calls(chosen, subject, mode, cpus, work):
    log = work / "strace.summary"

    def tool(pids):
        return Tool(["strace", "-f", "-c", "-qq", "-S", "calls", "-o", log, *(word for pid in pids for word in ("-p", pid))])

    told = under_load(chosen, subject, mode, cpus, work, tool)
    count = max(told["operations"], 1)
    print(f"\nsystem calls per operation (strace -c, {told['operations']} operations; strace slows the subject down, so\n"
          "more arrives at a time than without it; benchmark/counters.sh counts in lock step)")  # fmt: skip
    for line in log.read_text().splitlines():
        found = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(\d*)\s*(\w+)$", line)
        if found and found.group(3) != "total" and int(found.group(1)) >= count / 1000:
            errors = f"  ({int(found.group(2)) / count:.2f} failed)" if found.group(2) else ""
            print(f"{int(found.group(1)) / count:>10.2f}  {found.group(3)}{errors}")


def show_instructions(chosen, subject, cpus, work):
    """Of the functions, by callgrind, while chunks of 64 KiB go up and down in lock step."""
    mib = 32  # so many that start and stop do not show

    def load(rig):
        pair = rig.open(not chosen.plain)
        for _ in range(mib * counters.CHUNKS_PER_MIB // 2):
            rig.up(*pair)
            rig.down(*pair)
        rig.close(*pair)

    total = counters.instructions(subject, work, cpus, load)
    print(f"\ninstructions (callgrind): {total / mib:,.0f} per relayed MiB of 64 KiB chunks")
    files = max((work / "callgrind").glob("out.*"), key=lambda path: path.stat().st_size)
    told = subprocess.run(["callgrind_annotate", "--auto=no", files], capture_output=True, text=True).stdout
    lines = [line for line in told.splitlines() if re.match(r"\s*[\d,]+ \(\s*[\d.]+%\)", line)]
    print("\n".join(re.sub(r"(\S*/)?([^/\s]+:)", r"\2", line)[:150] for line in lines[1 : chosen.lines]))


def main():
    parser = argparse.ArgumentParser(prog="benchmark/profile.sh", description="Shows where a subject's time goes.")
    parser.add_argument("-s", "--subject", default="tlsproxy")
    parser.add_argument("-m", "--mode", default="bulk", choices=[name for name, mode in MODES.items() if name not in ("cross", "idle")])
    parser.add_argument("-x", "--point", help="as in bench.sh; its last one when missing")
    parser.add_argument("-c", "--connections", type=int)
    parser.add_argument("-d", "--seconds", type=float, default=5)
    parser.add_argument("-r", "--rate", type=int, default=5000)
    parser.add_argument("-n", "--lines", type=int, default=40, help="of each table at most")
    parser.add_argument("-t", "--tools", default="perf strace callgrind")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--build", type=pathlib.Path, default=driver.ROOT / "build/release", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    processes.end_in_order()
    mode = MODES[chosen.mode]
    tools = chosen.tools.replace(",", " ").split()
    try:
        subject = subjects.all_subjects().get(chosen.subject)
        if subject is None or not subject.proxies:
            raise machine.Unusable(f"no such subject: {chosen.subject}")
        if subject.plain_only and not chosen.plain:
            raise machine.Unusable(f"{chosen.subject} is for --plain only")
        if problem := subject.missing():
            raise machine.Unusable(problem)
        for tool in tools:
            program = {"callgrind": "valgrind"}.get(tool, tool)
            if tool not in ("perf", "strace", "callgrind"):
                raise machine.Unusable(f"no such tool: {tool}")
            if not shutil.which(program):
                raise machine.Unusable(f"no program {program}; apt-get install {'linux-perf' if tool == 'perf' else program}")
        subjects.descriptors()
        with machine.only_one(), machine.Cpus() as cpus, machine.congestion_control(), tempfile.TemporaryDirectory(
                prefix="tlsproxy-profile-") as name:  # fmt: skip
            work = pathlib.Path(name)
            work.chmod(0o755)
            try:
                if "perf" in tools:
                    show_perf(chosen, subject, mode, cpus, work)
                if "strace" in tools:
                    show_calls(chosen, subject, mode, cpus, work)
                if "callgrind" in tools:
                    show_instructions(chosen, subject, cpus, work)
            finally:
                processes.stop_all()
    except (machine.Unusable, generator.Failed) as problem:
        print(f"profile.sh: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
