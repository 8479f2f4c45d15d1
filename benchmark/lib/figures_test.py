"""Claims about medians, spreads and comparisons. Run: python3 -m unittest discover -s benchmark/lib -p '*_test.py'"""

import pathlib
import random
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import report  # noqa: E402
import rows  # noqa: E402
from figures import change, figure, round_to  # noqa: E402


def row(subject, round_, value, valid="yes", why="", point="65536"):
    return {"mode": "bulk", "variant": "tls", "point": point, "connections": 32, "subject": subject, "round": round_,
            "attempt": 1, "valid": valid, "why": why, "mb_per_cpu_s": value, "mb_per_s": value}  # fmt: skip


def folder_of(place, measured):
    place.mkdir()
    rows.write(place / "rows.csv", measured)
    return place


class Figures(unittest.TestCase):
    def test_a_single_value_has_no_spread_and_gives_no_verdict(self):
        self.assertIsNone(figure([5.0]).spread)
        self.assertEqual(change(figure([5.0]), figure([9.0])).verdict(True), "unknown")

    def test_the_spread_of_normal_values_is_about_their_standard_deviation(self):
        source = random.Random(7)
        for count in (4, 8, 20):
            spreads = [figure([source.gauss(100, 5) for _ in range(count)]).spread for _ in range(2000)]
            self.assertAlmostEqual(sum(spreads) / len(spreads), 5, delta=0.5, msg=f"{count} values")

    def test_one_wild_value_moves_neither_the_median_nor_the_spread_much(self):
        calm = figure([100, 101, 99, 102, 98, 100, 101, 99])
        wild = figure([100, 101, 99, 102, 98, 100, 101, 10])
        self.assertAlmostEqual(wild.median, calm.median, delta=1)
        self.assertLess(wild.spread, 3 * calm.spread)

    def test_equal_values_keep_one_per_cent_of_doubt(self):
        self.assertEqual(figure([200.0] * 8).spread, 2.0)

    def test_a_change_inside_both_spreads_is_the_same(self):
        old, new = figure([100, 104, 96, 102, 98]), figure([103, 107, 99, 105, 101])
        self.assertEqual(change(old, new).verdict(True), "same")

    def test_a_change_outside_them_is_better_or_worse_by_the_metrics_direction(self):
        old, new = figure([100, 101, 99, 100]), figure([120, 121, 119, 120])
        self.assertEqual(change(old, new).verdict(True), "better")
        self.assertEqual(change(old, new).verdict(False), "worse")

    def test_two_runs_of_the_same_thing_nearly_always_agree(self):
        source = random.Random(3)
        draw = lambda: figure([source.gauss(100, 5) for _ in range(8)])  # noqa: E731
        agree = sum(change(draw(), draw()).verdict(True) == "same" for _ in range(2000))
        self.assertGreater(agree, 0.95 * 2000)

    def test_numbers_are_written_with_three_digits(self):
        self.assertEqual([round_to(value) for value in (0, 0.01234, 5.678, 56.78, 567.8, 56789.1)],
                         ["0", "0.0123", "5.68", "56.8", "568", "56 789"])  # fmt: skip


class Reports(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def test_rows_that_broke_a_rule_are_counted_and_left_out(self):
        measured = [row("tlsproxy", n, 100 + n) for n in range(3)] + [row("tlsproxy", 3, 9000, "no", "the subject's CPU was used")]
        results = report.Results(folder_of(self.place / "run", measured))
        self.assertEqual(results.figure(("bulk", "tls", "65536", "32"), "tlsproxy", report.MODES["bulk"].metrics[0]).median, 101)
        self.assertIn("1 of them broke a rule", report.validity(results))

    def test_a_point_without_a_valid_row_is_named(self):
        measured = [row("tlsproxy", 1, 100), row("nginx", 1, 100, "no", "probe 2.0 times its best")]
        self.assertIn("64 KiB × 32: nginx", report.validity(report.Results(folder_of(self.place / "run", measured))))

    def test_being_behind_the_best_peer_is_told_with_its_ratio(self):
        measured = [row("tlsproxy", n, 100) for n in range(4)] + [row("nginx", n, 90) for n in range(4)]
        measured += [row("haproxy", n, 125) for n in range(4)]
        text = report.behind(report.Results(folder_of(self.place / "run", measured)))
        self.assertIn("haproxy", text)
        self.assertIn("0.800", text)
        self.assertIn("outside the spread", text)

    def test_being_ahead_everywhere_is_told_too(self):
        measured = [row("tlsproxy", n, 100) for n in range(4)] + [row("nginx", n, 90) for n in range(4)]
        self.assertIn("Nowhere", report.behind(report.Results(folder_of(self.place / "run", measured))))

    def test_the_comparison_calls_only_what_is_outside_the_spread_a_change(self):
        old = [row("tlsproxy", n, 100 + n) for n in range(4)] + [row("tlsproxy", n, 100 + 10 * n, point="64") for n in range(4)]
        new = [row("tlsproxy", n, 130 + n) for n in range(4)] + [row("tlsproxy", n, 105 + 10 * n, point="64") for n in range(4)]
        text = report.compare(folder_of(self.place / "old", old), folder_of(self.place / "new", new), [])
        self.assertIn("better: 2, same: 2", text)

    def test_the_report_is_written_from_the_rows_alone(self):
        measured = [row(subject, n, 100 + n) for subject in ("tlsproxy", "nginx") for n in range(3)]
        folder = folder_of(self.place / "run", measured)
        self.assertEqual(report.write(folder), (folder / "report.md").read_text())


if __name__ == "__main__":
    unittest.main()
