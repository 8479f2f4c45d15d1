"""What the rows of a run say: report.md with its tables and plots, and the comparison of two runs."""

import argparse
import collections
import contextlib
import json
import pathlib
import sys

import plots
import rows as table
from figures import change, figure, round_to
from modes import MODES

OURS = "tlsproxy"
LIMIT_HEADROOM = 0.05


def short(value):
    return "" if value is None else round_to(value)


def is_peer(subject):
    return not subject.startswith(OURS) and subject != "direct"


class Results:
    """The valid rows of a folder, as figures by point, metric and subject."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.all = table.read(self.folder / "rows.csv")
        self.rows = table.valid(self.all)
        self.facts = {}
        with contextlib.suppress(OSError):
            self.facts = json.loads((self.folder / "provenance.json").read_text())
        self.subjects = list(dict.fromkeys([*self.facts.get("subjects", {}), *(row["subject"] for row in self.all)]))
        self._values = collections.defaultdict(list)
        for row in self.rows:
            for metric in MODES[row["mode"]].metrics:
                if row[metric.column] is not None:
                    self._values[table.key(row), row["subject"], metric.column].append(row[metric.column])

    def figure(self, key, subject, metric):
        return figure(self._values.get((key, subject, metric.column), []))

    def groups(self):
        """(mode, variant) and the keys of its points, as they were measured."""
        found = {}
        for row in self.all:
            keys = found.setdefault((row["mode"], row["variant"]), [])
            if table.key(row) not in keys:
                keys.append(table.key(row))
        return found

    def measured(self, keys):
        """The subjects that have a valid row there, in the order of the tables."""
        present = {row["subject"] for row in self.rows if table.key(row) in keys}
        return [subject for subject in self.subjects if subject in present]

    def best_peer(self, key, metric):
        """(name, figure) of the best of nginx's and haproxy's; None when there is none."""
        peers = [(subject, found) for subject in self.subjects
                 if is_peer(subject) and (found := self.figure(key, subject, metric))]  # fmt: skip
        if not peers:
            return None
        return (max if metric.higher else min)(peers, key=lambda peer: peer[1].median)


def markdown(head, lines):
    """A table whose columns are aligned, so that it reads well as text too."""
    cells = [head, *lines]
    widths = [max(len(str(line[column])) for line in cells) for column in range(len(head))]
    text = ["| " + " | ".join(str(cell).ljust(width) for cell, width in zip(line, widths)) + " |" for line in cells]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text) + "\n"


def several_connections(keys):
    return len({key[3] for key in keys}) > 1


def metric_table(results, keys, metric):
    subjects = [subject for subject in results.measured(keys) if not (metric.per_cpu and subject == "direct")]
    many = several_connections(keys)
    lines = []
    for key in keys:
        figures = [results.figure(key, subject, metric) for subject in subjects]
        if any(figures):
            lines.append([plots.name_of(key, many), *(found.text() if found else "–" for found in figures)])
    if not lines:
        return ""
    unit = f", {metric.unit}" if metric.unit else ""
    better = "more is better" if metric.higher else "less is better"
    return f"\n**{metric.title}**{unit} ({better})\n\n" + markdown([MODES[keys[0][0]].x, *subjects], lines)


def verdict_words(difference, higher):
    return {"better": "ahead", "worse": "behind", "same": "inside the spread", "unknown": "one round: no verdict"}[
        difference.verdict(higher)]  # fmt: skip


def ratio_table(results, keys, metric):
    """tlsproxy as a part of nginx as shipped, and of the best peer."""
    lines = []
    for key in keys:
        ours, best, nginx = results.figure(key, OURS, metric), results.best_peer(key, metric), results.figure(key, "nginx", metric)
        if ours is None or best is None:
            continue
        shipped = change(nginx, ours)
        against = change(best[1], ours)
        if against is None:
            continue
        lines.append([plots.name_of(key, several_connections(keys)), f"{1 + shipped.part:.2f}" if shipped else "–",
                      f"{1 + against.part:.2f} ({best[0]})", verdict_words(against, metric.higher)])  # fmt: skip
    if not lines:
        return ""
    head = [MODES[keys[0][0]].x, "tlsproxy : nginx", "tlsproxy : best peer", "against the best"]
    better = "above 1 is better" if metric.higher else "below 1 is better"
    return f"\ntlsproxy against its peers, {metric.title} ({better})\n\n" + markdown(head, lines)


def behind(results):
    """Every point where tlsproxy's median is worse than the best peer's."""
    lines = []
    for (mode, variant), keys in results.groups().items():
        for metric in MODES[mode].metrics:
            if not metric.judged or mode == "cross":  # which measures again what other modes do
                continue
            for key in keys:
                ours, best = results.figure(key, OURS, metric), results.best_peer(key, metric)
                difference = change(best[1], ours) if best else None
                if difference is None or (difference.part >= 0 if metric.higher else difference.part <= 0):
                    continue
                sure = {"worse": "outside the spread", "same": "inside the spread"}.get(difference.verdict(metric.higher), "one round")
                lines.append([f"{mode} {variant}", plots.name_of(key, several_connections(keys)), metric.title, ours.text(),
                              f"{best[1].text()} ({best[0]})", f"{1 + difference.part:.3f}", sure])  # fmt: skip
    if not lines:
        return "Nowhere: at every point measured its median is at or ahead of the best peer's.\n"
    return markdown(["mode", "point", "figure", "tlsproxy", "best peer", "ratio", "difference"], lines)


def validity(results):
    invalid = [row for row in results.all if row["valid"] != "yes"]
    text = f"{len(results.all)} rows were measured, {len(invalid)} of them broke a rule and are left out of the tables"
    if invalid:
        reasons = collections.Counter(plain_reason(part) for row in invalid for part in row["why"].split("; "))
        text += " (" + ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common()) + ")"
    text += f". Measurements repeated: {results.facts.get('repeats', 'unknown')}"
    text += f"; seconds waited for a calm machine: {results.facts.get('seconds_waited_for_calm', 'unknown')}.\n"
    lost = [f"{mode} {variant} {plots.name_of(key, True)}: {subject}" for (mode, variant), keys in results.groups().items() for key in keys
            for subject in {row["subject"] for row in results.all if table.key(row) == key}
            if not any(table.key(row) == key and row["subject"] == subject for row in results.rows)]  # fmt: skip
    if lost:
        text += f"\nWithout a single valid row: {'; '.join(sorted(lost))}.\n"
    tight = [row for row in results.rows if is_busy(row["headroom"]) and (row["subject_load"] or 0) < 1 - LIMIT_HEADROOM]
    if tight:
        text += (f"\nIn {len(tight)} valid rows the generator's CPU had no time left and the subject's had: figures per second "
                 "are then what the generator can do; figures per CPU-second are not touched.\n")  # fmt: skip
    return text


def is_busy(headroom):
    return headroom is not None and headroom < LIMIT_HEADROOM


def plain_reason(text):
    """The reason without its figures, so that equal ones can be counted."""
    if text.startswith("probe "):
        return "the probe was slow"
    if "operations failed" in text:
        return "failed operations"
    return text.partition(":")[0]


def head(results):
    facts = results.facts
    if not facts:
        return ""
    build, congestion, cpus = facts["build"], facts["congestion_control"], facts["cpus_used"]
    lines = [
        f"- {facts['date']}, commit {facts['commit'][:12] or 'unknown'}{' with uncommitted changes' if facts['uncommitted'] else ''}, "
        f"{build['type']}, {build['compiler']}",
        f"- {facts['cpu']}, {facts['cpus']} CPUs ({facts['hypervisor'] or 'virtualisation unknown'}), Linux {facts['kernel']}, "
        f"{facts['system']}, {facts['openssl']}",
        f"- subject on CPU {cpus['subject']} ({cpus['method']}), generator and backend on CPU {cpus['generator']}; congestion control "
        f"{congestion['during']} (before: {congestion['before']}); probe at best "
        f"{', '.join(f'{us:.1f} us' for us in facts['probe_best_us'].values())}",
        f"- TLS 1.3, {facts['suite']}, {facts['group']}, certificate {facts['certificate'].upper()}",
    ]
    for name, subject in facts["subjects"].items():
        version = subject.get("version", "").partition("\n")[0]
        lines.append(f"- {name}: {', '.join(part for part in (version, subject['tuned']) if part)}")
    return "\n".join(lines) + "\n"


def cross_table(results, keys):
    """The ratio tlsproxy to nginx by wrk, and by our generator under the same load."""
    lines = []
    by_point = {key[2]: key for key in keys}
    per_op, per_mb = MODES["cross"].metrics[1], MODES["cross"].metrics[0]
    pairs = (
        ("wrk-64", "fetch-300", per_op),
        ("wrk-65536", "fetch-65536", per_mb),
        ("wrk-1048576", "fetch-1048576", per_mb),
    )
    for theirs, ours, metric in pairs:
        if theirs not in by_point or ours not in by_point:
            continue
        ratios = [change(results.figure(by_point[point], "nginx", metric), results.figure(by_point[point], OURS, metric))
                  for point in (theirs, ours)]  # fmt: skip
        if None in ratios:
            continue
        independent, own = (1 + ratio.part for ratio in ratios)
        lines.append([theirs, f"{independent:.3f}", ours, f"{own:.3f}", f"{100 * (own / independent - 1):+.1f}%",
                      "yes" if abs(own / independent - 1) <= 0.10 else "NO"])  # fmt: skip
    if not lines:
        return ""
    return "\n**tlsproxy : nginx by an independent tool and by ours**\n\n" + markdown(
        ["independent", "ratio", "ours", "ratio", "difference", "within 10 %"], lines)  # fmt: skip


def write(folder):
    """Makes report.md and the plots of a folder; the text."""
    results = Results(folder)
    modes = list(dict.fromkeys(mode for mode, _ in results.groups()))
    text = f"# Benchmark: {', '.join(modes)}\n\n{head(results)}\n"
    rounds = int(max((row["round"] for row in results.all), default=0))
    text += (f"Medians of {rounds} round{'s' if rounds != 1 else ''} with their spread (a robust standard deviation, at least 1 %; "
             "none for one round).\n\n")  # fmt: skip
    text += validity(results)
    for (mode, variant), keys in results.groups().items():
        text += f"\n## {mode}, {'TLS' if variant == 'tls' else 'plain TCP'}: {MODES[mode].what}\n"
        for index, metric in enumerate(MODES[mode].metrics):
            text += metric_table(results, keys, metric)
            if index == 0 or (metric.judged and MODES[mode].latency):
                text += ratio_table(results, keys, metric)
        if mode == "cross":
            text += cross_table(results, keys)
        for file, title in plots.draw(results, mode, variant, keys):
            text += f"\n![{title}]({file})\n"
    text += f"\n## Where tlsproxy is behind\n\n{behind(results)}"
    (results.folder / "report.md").write_text(text)
    return text


def compare(old, new, only):
    """The change of every point that both have; what is inside the spread is called the same."""
    before, after = Results(old), Results(new)
    lines, counts = [], collections.Counter()
    groups = after.groups()
    for (mode, variant), keys in groups.items():
        for metric in MODES[mode].metrics:
            for key in keys:
                for subject in after.measured([key]):
                    if only and subject not in only or metric.per_cpu and subject == "direct":
                        continue
                    one, two = before.figure(key, subject, metric), after.figure(key, subject, metric)
                    difference = change(one, two)
                    if difference is None:
                        continue
                    verdict = difference.verdict(metric.higher)
                    counts[verdict] += 1
                    spread = "unknown" if difference.spread is None else f"±{100 * difference.spread:.1f}%"
                    lines.append([f"{mode} {variant}", plots.name_of(key, several_connections(keys)), metric.title, subject, one.text(),
                                  two.text(), f"{100 * difference.part:+.1f}%", spread, verdict])  # fmt: skip
    if not lines:
        return "nothing in common\n"
    summary = ", ".join(f"{verdict}: {counts[verdict]}" for verdict in ("better", "worse", "same", "unknown") if counts[verdict])
    notes = "".join(f"{name}: {results.facts.get('commit', '')[:12] or 'unknown commit'}, {results.facts.get('date', '')}\n"
                    for name, results in (("old", before), ("new", after)))  # fmt: skip
    for fact in ("kernel", "cpu", "openssl", "certificate"):
        if before.facts.get(fact) != after.facts.get(fact):
            notes += f"different {fact}: {before.facts.get(fact)} and {after.facts.get(fact)}\n"
    return (f"{notes}\n" + markdown(["mode", "point", "figure", "subject", "old", "new", "change", "spread of both", "verdict"], lines)
            + f"\n{summary} (a change inside the spread of both is called the same)\n")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(prog="benchmark/report", description="Makes the report of a run anew, or compares two runs.")
    parser.add_argument("folder", help="folder of a run of bench.sh")
    parser.add_argument("--against", metavar="OLD", help="folder of an earlier run: prints the change from it")
    parser.add_argument("-s", "--subjects", help="only these in the comparison")
    chosen = parser.parse_args()
    try:
        if chosen.against:
            print(compare(chosen.against, chosen.folder, (chosen.subjects or "").replace(",", " ").split()), end="")
        else:
            print(write(chosen.folder), end="")
    except OSError as problem:
        print(f"report: {problem}", file=sys.stderr)
        return 1
    return 0
