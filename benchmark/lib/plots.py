"""Plots of a run as SVG, drawn by gnuplot from the templates in plots/."""

import pathlib
import shutil
import subprocess

import rows as table
from modes import MODES

_TEMPLATES = pathlib.Path(__file__).resolve().parent / "plots"
_COLOURS = {
    "tlsproxy": "#d62728", "tlsproxy-old": "#ff9896", "nginx": "#2ca02c", "nginx-64k": "#98df8a", "haproxy": "#1f77b4",
    "haproxy-64k": "#aec7e8", "haproxy-splice": "#9467bd", "direct": "#7f7f7f",
}  # fmt: skip
_PERCENTILES = (("p50_us", 2), ("p90_us", 10), ("p99_us", 100), ("p999_us", 1000))


def name_of(key, with_connections=False):
    """How a point is called: sizes in their largest whole unit."""
    mode, _, point, connections = key
    if mode in ("bulk", "up", "down"):
        size = int(point)
        for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")):
            if size >= unit and size % unit == 0:
                point = f"{size // unit} {name}"
                break
    return f"{point} × {connections}" if with_connections and connections != "0" else point


def _gnuplot(template, folder, name, series, **texts):
    """`series` is a list of (subject, lines of a data block); writes NAME.svg."""
    data = folder / f"{name}.dat"
    blocks = ["\n".join(" ".join(str(cell) for cell in line) for line in lines) for _, lines in series]
    data.write_text("\n\n\n".join(blocks) + "\n")
    settings = {"out": str(folder / f"{name}.svg"), "data": str(data), "names": " ".join(subject for subject, _ in series),
                "colours": " ".join(_COLOURS.get(subject, "#000000") for subject, _ in series), **texts}  # fmt: skip
    script = "; ".join(f'{key} = "{value}"' for key, value in settings.items())
    try:
        done = subprocess.run(["gnuplot", "-e", script, _TEMPLATES / template], capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"gnuplot {template}: {done.stderr.strip()}")
    finally:
        data.unlink()
    return f"{name}.svg"


def _lines(results, keys, subjects, metric, relative_to=None):
    series = []
    for subject in subjects:
        points = []
        for key in keys:
            found = results.figure(key, subject, metric)
            base = results.figure(key, relative_to, metric) if relative_to else None
            if found is None or relative_to and (base is None or base.median == 0):
                continue
            scale = base.median if base else 1
            points.append((key[2], found.median / scale, (found.spread or 0) / scale, f'"{name_of(key)}"'))
        if points:
            series.append((subject, points))
    return series


def _bars(results, keys, subjects, metric):
    """One block a subject: the bar's place, its height, its spread, the name of the point."""
    series = []
    for subject in subjects:
        points = []
        for place, key in enumerate(keys):
            found = results.figure(key, subject, metric)
            if found is not None:
                points.append((place, found.median, found.spread or 0, f'"{name_of(key)}"'))
        if points:
            series.append((subject, points))
    return series


def _distribution(results, key, subjects):
    series = []
    for subject in subjects:
        rows = [row for row in results.rows if row["subject"] == subject and table.key(row) == key]
        points = []
        for column, place in _PERCENTILES:
            values = sorted(row[column] for row in rows if row[column] is not None)
            if values:
                points.append((place, values[len(values) // 2], 0))
        if points:
            series.append((subject, points))
    return series


def draw(results, mode, variant, keys):
    """(file, title) of each plot that this mode has."""
    if not shutil.which("gnuplot"):
        return []
    subjects = results.measured(keys)
    drawn = []
    kind = "TLS" if variant == "tls" else "plain TCP"
    metric = MODES[mode].metrics[0]
    proxies = [subject for subject in subjects if subject != "direct"]

    def add(template, name, series, title, **texts):
        if series:
            file = _gnuplot(template, results.folder, f"{mode}-{variant}-{name}", series, title=f"{title} ({kind})", **texts)
            drawn.append((file, f"{title} ({kind})"))

    for count in dict.fromkeys(key[3] for key in keys):
        chosen = [key for key in keys if key[3] == count]
        suffix = f"-{count}" if len({key[3] for key in keys}) > 1 else ""
        if MODES[mode].latency:
            for key in chosen:
                add("distribution.gp", f"latency-{key[2]}", _distribution(results, key, subjects),
                    f"{mode}: latency, {key[2]} {MODES[mode].x}", ylabel="us")  # fmt: skip
        elif len(chosen) > 1 and MODES[mode].log_x:
            ylabel = f"{metric.unit} per CPU-second" if metric.column == "mb_per_cpu_s" else metric.unit
            add("lines.gp", f"absolute{suffix}", _lines(results, chosen, proxies, metric), f"{mode}: {metric.title}",
                xlabel=MODES[mode].x, ylabel=ylabel, logy="1" if metric.higher else "")  # fmt: skip
            if metric.higher:
                add("lines.gp", f"relative{suffix}", _lines(results, chosen, proxies, metric, "nginx"),
                    f"{mode}: {metric.title}, nginx as shipped = 1", xlabel=MODES[mode].x, ylabel="ratio", logy="")  # fmt: skip
        else:
            add("bars.gp", f"absolute{suffix}", _bars(results, chosen, proxies, metric), f"{mode}: {metric.title}",
                ylabel=metric.unit or "per CPU-second")  # fmt: skip
    return drawn
