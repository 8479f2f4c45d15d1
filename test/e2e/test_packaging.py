"""The systemd unit: correct, and hardened so far that systemd itself says so."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from harness import BINARY, EndToEnd

PACKAGING = pathlib.Path(__file__).resolve().parents[2] / "packaging"


class Unit(EndToEnd):
    def setUp(self):
        super().setUp()
        if shutil.which("systemd-analyze") is None:
            self.skipTest("systemd-analyze is not installed")
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-")))
        text = (PACKAGING / "tlsproxy.service.in").read_text()
        # The program under test stands in for the installed one, whose presence systemd checks.
        text = text.replace("@CMAKE_INSTALL_FULL_SBINDIR@/tlsproxy", BINARY)
        text = re.sub(r"@[A-Z_]*SBINDIR@/tlsproxy", BINARY, text)
        text = re.sub(r"@[A-Z_]*SYSCONFDIR@", "/etc", text)
        self.assertNotIn("@", re.sub(r"(?m)^#.*$|^SystemCallFilter=.*$|@[a-z-]+", "", text), "unknown variable")
        self.unit = self.folder / "tlsproxy.service"
        self.unit.write_text(text)

    def analyze(self, *arguments):
        environment = {**os.environ, "SYSTEMD_LOG_LEVEL": "warning"}
        return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, timeout=60,
                              env=environment)  # fmt: skip

    def test_verify_is_silent(self):
        done = self.analyze("verify", "--man=no", str(self.unit))
        if "Failed to initialize manager" in done.stderr:
            self.skipTest(f"systemd-analyze cannot run here: {done.stderr.strip()}")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_the_exposure_level_is_below_2(self):
        done = self.analyze("security", "--offline=true", "--no-pager", str(self.unit))
        found = re.search(r"exposure level for tlsproxy\.service: ([0-9.]+)", done.stdout)
        if found is None:
            self.skipTest(f"systemd-analyze cannot judge units here: {done.stderr.strip()}")
        self.assertLess(float(found.group(1)), 2.0)


if __name__ == "__main__":
    unittest.main()
