"""YAML that means something other than it looks, and the command line's checks (case 38)."""

import json
import pathlib
import re
import resource
import tempfile
import textwrap
import time
import unittest

import certs
import modes
from backends import identify
from harness import PATIENCE, EndToEnd
from proxy import run_program, with_user

GOOD = """\
workers: 1
user: nobody
listeners:
  - name: front
    bind: "127.0.0.1:8443"
    to: back
backends:
  back:
    servers: ["127.0.0.1:9"]
"""


class Checked(EndToEnd):
    def setUp(self):
        super().setUp()
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-")))
        self.file = self.folder / "tlsproxy.yaml"

    def check(self, text, *options):
        self.file.write_bytes(text if isinstance(text, bytes) else textwrap.dedent(text).encode())
        return run_program(*(options or ("-t",)), "-c", self.file)

    def assert_error(self, text, line=None, pattern="", column=r"\d+"):
        """Check mode refuses the text and says where and why."""
        done = self.check(text)
        self.assertEqual(done.returncode, 1, done.stderr)
        place = rf"{re.escape(str(self.file))}:{line or r'[0-9]+'}:{column}: error: "
        self.assertRegex(done.stderr, rf"(?m)^{place}(?i:.*{pattern})")
        return done.stderr

    def assert_good(self, text):
        done = self.check(text)
        self.assertEqual((done.returncode, done.stderr), (0, f"{self.file}: configuration is valid\n"))


class Looks(Checked):
    """Each text is an error with its place, or means what the documentation says."""

    def test_the_sample_that_the_errors_below_vary_is_good(self):
        self.assert_good(GOOD)

    def test_a_duplicate_key_is_an_error_at_each_level(self):
        self.assert_error(GOOD + "workers: 2\n", 10, "workers")
        self.assert_error(GOOD.replace("    to: back\n", "    to: back\n    to: back\n"), 7, "to")
        self.assert_error(GOOD + "  back:\n    echo: true\n", 10, "back")
        self.assert_error(GOOD + "log: {level: info, level: warn}\n", 10, "level")

    def test_octal_looking_numbers_are_errors(self):
        self.assert_error(GOOD.replace("workers: 1", "workers: 010"), 1)
        self.assert_error(GOOD.replace('"127.0.0.1:8443"', '"127.0.0.1:0443"'), 5)
        self.assert_error(GOOD.replace('"127.0.0.1:8443"', '"127.0.0.1:08"'), 5)

    def test_a_bare_double_colon_is_an_error_that_shows_the_bracket_form(self):
        self.assert_error(GOOD.replace('"127.0.0.1:8443"', '"::"'), 5, r"\[::\]")
        self.assert_error(GOOD.replace('"127.0.0.1:8443"', '"::443"'), 5, r"\[::\]")
        self.assert_error(GOOD.replace('"127.0.0.1:8443"', "::"), 5)

    def test_base_60_looking_values_are_no_numbers(self):
        self.assert_error(GOOD.replace('"127.0.0.1:8443"', "22:22"), 5)
        self.assert_error(GOOD.replace("workers: 1", "workers: 1:30"), 1)
        self.assert_error("drain: 1:30\n" + GOOD, 1)

    def test_names_that_look_like_other_types_are_names(self):
        for name in ("on", "no", "1e3", "true", "0x10"):
            with self.subTest(name=name):
                named = GOOD.replace("name: front", f"name: {name}").replace("to: back", f"to: {name}")
                self.assert_good(named.replace("  back:\n", f"  {name}:\n"))
        self.assert_error(GOOD.replace("name: front", "name: null"), 4)
        self.assert_error(GOOD.replace("  back:\n", "  null:\n"), 8)

    def test_tabs_are_errors(self):
        self.assert_error(GOOD.replace("    to: back", "\tto: back"), 6)

    def test_anchors_and_merge_keys_mean_what_yaml_says_or_are_errors(self):
        once = GOOD.replace('servers: ["127.0.0.1:9"]', 'servers: &s ["127.0.0.1:9"]\n  other:\n    servers: *s')
        done = self.check(once)
        self.assertIn(done.returncode, (0, 1))
        if done.returncode:
            self.assert_error(once, pattern="anchor|alias")
        merge = GOOD.replace('servers: ["127.0.0.1:9"]', '<<: {servers: ["127.0.0.1:9"]}')
        self.assert_error(merge, 9, "<<|merge")

    def test_a_misspelt_key_is_an_error_that_names_the_nearest(self):
        self.assert_error(GOOD.replace("workers", "wrokers"), 1, "workers", column=1)
        self.assert_error(GOOD.replace("    bind:", "    bnid:"), 5, "bind", column=5)
        self.assert_error(GOOD.replace("    servers:", "    serves:"), 9, "servers")
        self.assert_error(GOOD + "log: {levle: info}\n", 10, "level")

    def test_a_byte_order_mark_and_crlf_change_nothing(self):
        self.assert_good(b"\xef\xbb\xbf" + GOOD.encode())
        self.assert_good(GOOD.replace("\n", "\r\n").encode())

    def test_durations_and_sizes_need_their_unit(self):
        timeouts = GOOD.replace("    to: back", "    to: back\n    timeouts: {idle: %s}")
        self.assert_good(timeouts % "5s")
        self.assert_good(timeouts % "1h30m")
        for bad in ("5", "0", "0s", "-1", "-1s", "99999999999999999999", "99999999999999999999s", "5 parsecs", "366d",
                    "''", "[5s]", "{a: 5s}"):  # fmt: skip
            with self.subTest(value=bad):
                self.assert_error(timeouts % bad, 7)
        self.assert_good("buffer_memory: 64M\n" + GOOD)
        for bad in ("64", "-1M", "99999999999999999999G", "1.5G", "64 parsecs"):
            with self.subTest(value=bad):
                self.assert_error(f"buffer_memory: {bad}\n" + GOOD, 1)

    def test_an_empty_file_and_two_documents_are_errors(self):
        for text in ("", "\n", "# only a comment\n", "---\n", "[]", "just text", GOOD + "---\n" + GOOD):
            with self.subTest(text=text[:12]):
                done = self.check(text)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, rf"(?m)^{re.escape(str(self.file))}:(\d+:\d+:)? error: ")

    def test_text_that_is_not_yaml_is_an_error_with_its_place(self):
        for text in ("listeners: [", "a: b: c", "%", GOOD + "'", "\x00", b"\xff\xfe\x00", "- - -\n -", "{" * 5000):
            with self.subTest(text=text[:12]):
                done = self.check(text)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, "error: ")

    def test_anchors_that_expand_to_millions_are_refused_in_bounded_time_and_memory(self):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [" + ", ".join([f"*a{i - 1}"] * 9) + "]" for i in range(1, 12)]
        bomb = "\n".join(lines) + "\n" + GOOD.replace('["127.0.0.1:9"]', "*a11")
        self.file.write_text(bomb)
        began = time.monotonic()
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        done = run_program("-t", "-c", self.file, seconds=20)
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: ", done.stderr)
        self.assertLess(time.monotonic() - began, 5 * PATIENCE)
        self.assertLess(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, max(before, 500_000), "KiB")
        self.assertLess(len(done.stderr), 100_000)

    def test_references_and_values_out_of_range_are_errors(self):
        for line, change in {
            6: ("to: back", "to: bakc"),
            5: ('"127.0.0.1:8443"', '"127.0.0.1:70000"'),
            4: ("name: front", "name: 'with space'"),
            1: ("workers: 1", "workers: -1"),
            9: ('["127.0.0.1:9"]', '[{address: "127.0.0.1:9", weight: 0}]'),
        }.items():
            with self.subTest(change=change):
                self.assertIn(change[0], GOOD)
                self.assert_error(GOOD.replace(*change), line)
        twice = GOOD.replace("backends:", '  - {name: front, bind: ":9443", to: back}\nbackends:')
        self.assert_error(twice, 7, "front")

    def test_route_tests_that_cannot_hold_are_errors(self):
        self.assert_error(GOOD.replace("to: back", "routes: [{sni: a.test, to: back}]"), 6, "sni|tls")
        self.assert_error(GOOD.replace("to: back", "to: back\n    routes: [{to: back}]"), pattern="routes|to")
        self.assert_error(GOOD.replace("    to: back\n", ""), 4)

    def test_all_errors_of_a_file_are_told_at_once_in_the_order_of_their_places(self):
        text = GOOD.replace("workers: 1", "workers: many").replace("bind:", "bnid:").replace("to: back", "to: nobody")
        done = self.check(text)
        lines = [int(found) for found in re.findall(r":(\d+):\d+: error: ", done.stderr)]
        self.assertGreaterEqual(len(set(lines)), 3, done.stderr)
        self.assertEqual(lines, sorted(lines))


class Files(Checked):
    """What -t finds out about the files that a configuration names."""

    def tls(self, certificate, **tls):
        listener = {"name": "front", "bind": "127.0.0.1:0", "to": "back",
                    "tls": {"certificates": [certificate], **tls}}  # fmt: skip
        return json.dumps(with_user({"listeners": [listener], "backends": {"back": {"echo": True}}}), indent=1)

    def assert_file_error(self, certificate, pattern, **tls):
        stderr = self.assert_error(self.tls(certificate, **tls), pattern=pattern)
        self.assertIn("front", stderr, "the listener is named")

    def test_certificates_that_cannot_serve_are_named_with_file_and_listener(self):
        good = certs.server()
        other = certs.root().leaf("other.test")
        expired = certs.root().leaf("expired.test", first_day=-20, last_day=-10)
        cut = self.folder / "cut.pem"
        cut.write_text(pathlib.Path(good.chain).read_text()[:300])
        encrypted = self.folder / "encrypted.key"
        certs.openssl("pkey", "-in", good.key, "-aes256", "-passout", "pass:secret", "-out", encrypted)
        wrong = self.folder / "wrong.txt"
        wrong.write_text("no such passphrase\n")
        self.assertEqual(self.check(self.tls(good.entry())).returncode, 0)
        self.assert_file_error({"chain": good.chain, "key": other.key}, r"match")
        self.assert_file_error(expired.entry(), r"expired\.test.*expired|expired.*expired\.test")
        self.assert_file_error({"chain": "/nonexistent/x.pem"}, r"/nonexistent/x\.pem.*no such file")
        self.assert_file_error({"chain": str(cut), "key": good.key}, r"cut\.pem")
        self.assert_file_error({"chain": good.chain, "key": str(encrypted)}, r"encrypted\.key")
        self.assert_file_error(
            {"chain": good.chain, "key": str(encrypted), "password_file": str(wrong)}, r"encrypted\.key"
        )
        self.assert_file_error(good.entry(), "cipher", ciphers="NO-SUCH-CIPHER")

    def test_relative_files_are_under_the_configurations_folder_or_the_prefix(self):
        good = certs.server()
        for name in ("x.pem", "x.key"):
            source = good.chain if name.endswith("pem") else good.key
            (self.folder / name).write_text(pathlib.Path(source).read_text())
        text = self.tls({"chain": "x.pem", "key": "x.key"})
        self.assertEqual(self.check(text, "-t").returncode, 0)
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        self.assertEqual(self.check(text, "-t", "-p", str(elsewhere)).returncode, 1)
        (self.folder / "x.pem").rename(elsewhere / "x.pem")
        (self.folder / "x.key").rename(elsewhere / "x.key")
        self.assertEqual(self.check(text, "-t", "-p", str(elsewhere)).returncode, 0)


class CommandLine(Checked):
    def test_check_mode_is_quiet_when_asked_and_its_status_tells(self):
        done = self.check(GOOD, "-t", "-q")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        done = self.check("workers: many\n", "-t", "-q")
        self.assertEqual(done.returncode, 1)
        self.assertIn("error: ", done.stderr)

    def test_the_effective_configuration_is_complete_and_gives_itself_again(self):
        done = self.check(GOOD, "-T")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"idle: (10m|600s)")
        self.assertRegex(done.stdout, r"backlog: 511")
        again = self.check(done.stdout, "-T")
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout))

    def test_version_and_help_answer_with_success(self):
        self.assertRegex("".join(self.outputs("-v")), r"tlsproxy.*\d+\.\d+\.\d+")
        self.assertRegex("".join(self.outputs("-V")), r"OpenSSL")
        self.assertRegex("".join(self.outputs("-h")), r"-c\b")

    def outputs(self, option):
        done = run_program(option)
        self.assertEqual(done.returncode, 0)
        return done.stdout, done.stderr

    def test_wrong_usage_is_told_apart_from_errors(self):
        for arguments in (["--no-such-option"], ["-s"], ["-s", "dance"], ["surplus"], ["-c"]):
            with self.subTest(arguments=arguments):
                done = run_program(*arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertNotEqual(done.stderr, "")

    def test_a_missing_configuration_is_an_error_that_names_it(self):
        for options in ((), ("-t",)):
            done = run_program(*options, "-c", self.folder / "none.yaml")
            self.assertEqual(done.returncode, 1)
            self.assertIn("none.yaml", done.stderr)


class AtReload(EndToEnd):
    def test_each_bad_text_leaves_the_old_rules_in_force(self):
        old = self.start_backend(identify(b"old"))
        good = {"listeners": [modes.PLAIN.listener()], "backends": {"back": [old.address]}}
        proxy = self.start_proxy(good)
        for text in ("", "wrokers: 1\n", GOOD + "workers: 2\n", GOOD.replace("to: back", "to: nobody"), "\tx"):
            with self.subTest(text=text[:12]):
                said = proxy.reload_refused(text)
                self.assertRegex(said, rf"{re.escape(str(proxy.file))}:(\d+:\d+:)? error: ")
                self.assertRegex(said, r"reload refused: \d+ errors? in .*; generation 1 stays")
                stream = self.opened(modes.PLAIN.connect(proxy))
                stream.send(b"who?")
                self.assertEqual(stream.read_to_end().head, b"old")
        proxy.reload(good)


if __name__ == "__main__":
    unittest.main()
