"""The rows of a run: one measurement each, kept in rows.csv whether it is valid or not."""

import csv
import pathlib

COLUMNS = (
    "mode", "variant", "point", "connections", "subject", "round", "attempt", "valid", "why",
    "seconds", "operations", "bytes", "failed", "failures",
    "cpu_s", "mb_per_cpu_s", "mb_per_s", "ops_per_cpu_s", "ops_per_s", "cpu_us_per_op",
    "p50_us", "p90_us", "p99_us", "p999_us", "max_us", "start_delay_p99_us",
    "private_kib", "pss_kib", "rss_start_kib", "rss_held_kib", "rss_after_kib", "rss_left",
    "subject_load", "cpu_busy", "headroom", "generator_cpu_s", "backend_cpu_s",
    "probe_before_us", "probe_after_us", "probe_ratio", "workers_changed",
    "ports_opened", "ports_range", "time_wait", "congestion",
    "full", "resumed", "tls_version", "suite", "group", "unix_time",
)  # fmt: skip

_TEXT = {"mode", "variant", "point", "connections", "subject", "valid", "why", "failures", "congestion", "tls_version", "suite", "group"}


def write(path, rows):
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({key: f"{value:.6g}" if isinstance(value, float) else value for key, value in row.items()})


def read(path):
    """Numbers are numbers, and what is not there is None."""
    with open(pathlib.Path(path), newline="") as file:
        return [{key: text if key in _TEXT else float(text) if text else None for key, text in row.items()}
                for row in csv.DictReader(file)]  # fmt: skip


def valid(rows):
    return [row for row in rows if row["valid"] == "yes"]


def key(row):
    """What is measured, without by whom: mode, variant, point, connections."""
    return row["mode"], row["variant"], row["point"], str(row["connections"])
