"""Client certificates: who is let in, resumed (case 30) or revoked (case 32)."""

import re
import subprocess
import unittest

import certs
from backends import record, say_and_close
from harness import until
from proxy import Proxy
from tls_case import TlsCase, listener


class ClientCertificates(TlsCase):
    def start_with(self, mode):
        tls = {
            "certificates": [certs.server().entry()],
            "client_auth": {"mode": mode, "ca": certs.clients().cert},
        }
        return self.start(tls)

    def stranger(self):
        other = certs.Authority(certs.folder(), f"strangers-{self._testMethodName[-20:]}")
        return certs.client_context(certificate=other.leaf("mallory", client=True))

    def good(self, proxy, context):
        stream = self.connect(proxy, context=context)
        self.assertEqual(stream.read_to_end().head, b"hello")
        stream.finish()

    def test_required_lets_in_only_those_the_authority_signed(self):
        proxy = self.start_with("required")
        self.good(proxy, certs.client_context(certificate=certs.alice()))
        self.assertRegex(proxy.session(reason="finished")["client_cert"], r"CN=alice")
        self.assertTrue(self.refused(proxy))
        line = proxy.session(reason="certificate_rejected")
        self.assertEqual((line["side"], line["alert_dir"]), ("client", "sent"))
        self.assertTrue(self.refused(proxy, context=self.stranger()))
        until(lambda: len(proxy.sessions(reason="certificate_rejected")) == 2, "the second rejection")
        line = proxy.sessions(reason="certificate_rejected")[1]
        self.assertEqual(line["alert"], "unknown_ca")
        self.assertRegex(line["verify_error"], r"(?i)issuer|self.signed|verify")
        self.assertEqual(len(self.backend.connections), 1)

    def test_optional_lets_in_those_without_and_refuses_a_bad_one(self):
        proxy = self.start_with("optional")
        self.good(proxy, certs.client_context())
        self.assertNotIn("client_cert", proxy.session(reason="finished"))
        self.good(proxy, certs.client_context(certificate=certs.alice()))
        until(lambda: [line for line in proxy.sessions() if "CN=alice" in line.get("client_cert", "")], "alice's line")
        self.assertTrue(self.refused(proxy, context=self.stranger()))
        proxy.session(reason="certificate_rejected")

    def test_none_asks_for_no_certificate(self):
        proxy = self.start({"certificates": [certs.server().entry()]})
        self.good(proxy, certs.client_context(certificate=certs.alice()))
        self.assertNotIn("client_cert", proxy.session())


class Resumption(TlsCase):
    """Case 30."""

    def start_asking(self, workers=2):
        self.backend = self.start_backend(say_and_close(b"hello"))
        self.configuration = {
            "workers": workers,
            "listeners": [listener({
                "certificates": [certs.server().entry()],
                "client_auth": {"mode": "required", "ca": certs.clients().cert},
            })],
            "backends": {"back": [self.backend.address]},
        }  # fmt: skip
        return self.start_proxy(self.configuration)

    def s_client(self, proxy, *options):
        done = subprocess.run(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % proxy.port(), "-servername", "front.test",
             "-cert", certs.alice().cert, "-key", certs.alice().key, *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return done.stdout + done.stderr

    def test_tls_1_2_reconnects_all_succeed_and_show_the_clients_identity(self):
        proxy = self.start_asking()
        output = self.s_client(proxy, "-tls1_2", "-reconnect")
        self.assertEqual(len(re.findall(r"^(New|Reused), TLSv1.2", output, re.MULTILINE)), 6, output[-2000:])
        self.assertNotIn("alert", output)
        until(lambda: len(proxy.sessions()) == 6, "six access lines")
        for line in proxy.sessions():
            self.assertRegex(line["client_cert"], "CN=alice")

    def test_tls_1_3_sessions_are_taken_up_again_across_workers_and_a_reload(self):
        proxy = self.start_asking()
        store = str(proxy.folder / "session.pem")
        output = self.s_client(proxy, "-tls1_3", "-ign_eof", "-sess_out", store)
        self.assertIn("hello", output)
        for turn in range(10):
            if turn == 5:
                proxy.reload({**self.configuration, "drain": "61s"})
            output = self.s_client(proxy, "-tls1_3", "-ign_eof", "-sess_in", store)
            self.assertRegex(output, r"(New|Reused), TLSv1.3")
            self.assertIn("hello", output)
            self.assertNotIn("alert", output.replace("warning close_notify", ""))
        until(lambda: len(proxy.sessions()) == 11, "eleven access lines")
        for line in proxy.sessions():
            self.assertRegex(line["client_cert"], "CN=alice")
            self.assertIn(line["reason"], ("finished", "truncated"))

    def test_a_resumed_session_is_logged_as_such(self):
        proxy = self.start_asking(workers=1)
        store = str(proxy.folder / "session.pem")
        self.s_client(proxy, "-tls1_3", "-ign_eof", "-sess_out", store)
        output = self.s_client(proxy, "-tls1_3", "-ign_eof", "-sess_in", store)
        self.assertIn("Reused, TLSv1.3", output)
        until(lambda: len(proxy.sessions()) == 2, "two access lines")
        self.assertEqual([line["resumed"] for line in proxy.sessions()], [False, True])


class RevocationLists(TlsCase):
    """Case 32: A is good, B is revoked, both below an intermediate."""

    @classmethod
    def setUpClass(cls):
        cls.root = certs.Authority(certs.folder(), "crl-root")
        cls.intermediate = certs.Authority(certs.folder(), "crl-intermediate", cls.root)
        cls.good = cls.intermediate.leaf("good", client=True)
        cls.revoked = cls.intermediate.leaf("revoked", client=True)
        cls.intermediate.revoke(cls.revoked)
        cls.of_intermediate = cls.intermediate.crl("crl.pem")
        cls.of_root = cls.root.crl("crl.pem")
        cls.expired = cls.intermediate.crl("expired.pem", -20, -10)
        cls.not_yet = cls.intermediate.crl("not-yet.pem", 10, 20)
        cls.both = certs.folder() / "both-crls.pem"
        cls.both.write_text(open(cls.of_root).read() + open(cls.of_intermediate).read())
        cls.empty = certs.folder() / "empty.pem"
        cls.empty.write_text("")

    def start_trusting(self, ca, crl):
        client_auth = {"mode": "required", "ca": ca, "depth": 2}
        if crl:
            client_auth["crl"] = [str(file) for file in crl]
        return self.start({"certificates": [certs.server().entry()], "client_auth": client_auth})

    def context(self, leaf, with_intermediate=True):
        context = certs.client_context()
        context.load_cert_chain(leaf.chain if with_intermediate else leaf.cert, leaf.key)
        return context

    def admits(self, proxy, leaf, with_intermediate=True):
        before = len(proxy.sessions())
        refused = self.refused(proxy, context=self.context(leaf, with_intermediate))
        if refused:
            until(lambda: len(proxy.sessions()) > before, "the access line")
            line = proxy.sessions()[-1]
            self.assertEqual(line["reason"], "certificate_rejected")
            self.assertIn("verify_error", line)
            self.verify_error = line["verify_error"]
        return not refused

    def test_with_lists_of_the_whole_chain_good_is_in_and_revoked_is_out(self):
        for crl in ([self.of_root, self.of_intermediate], [self.both]):
            with self.subTest(files=len(crl)):
                proxy = self.start_trusting(self.root.cert, crl)
                self.assertTrue(self.admits(proxy, self.good))
                self.assertFalse(self.admits(proxy, self.revoked))
                self.assertRegex(self.verify_error, "(?i)revoked")
                self.assertFalse(self.admits(proxy, self.good, with_intermediate=False))

    def test_an_intermediate_can_be_the_trust_anchor(self):
        proxy = self.start_trusting(self.intermediate.cert, [])
        self.assertTrue(self.admits(proxy, self.good))
        self.assertTrue(self.admits(proxy, self.good, with_intermediate=False))

    def test_revoked_stays_out_whatever_the_material(self):
        materials = {
            "intermediate, its list": (self.intermediate.cert, [self.of_intermediate]),
            "root, the intermediate's list only": (self.root.cert, [self.of_intermediate]),
            "root, an expired list": (self.root.cert, [self.of_root, self.expired]),
            "root, a list that is not yet valid": (self.root.cert, [self.of_root, self.not_yet]),
        }
        for name, (ca, crl) in materials.items():
            with self.subTest(material=name):
                proxy = self.start_trusting(ca, crl)
                self.assertFalse(self.admits(proxy, self.revoked))
                if not self.admits(proxy, self.good):
                    self.assertRegex(self.verify_error, "(?i)crl|issuer|certificate")

    def test_an_expired_list_closes_and_is_warned_of_at_load(self):
        proxy = self.start_trusting(self.root.cert, [self.of_root, self.expired])
        self.assertRegex(proxy.log(), r"(?i)expired\.pem.*expired|CRL.*expired")
        self.assertFalse(self.admits(proxy, self.good))
        self.assertRegex(self.verify_error, "(?i)crl has expired")

    def test_an_empty_list_file_is_refused_at_load_by_name(self):
        backend = self.start_backend(record)
        client_auth = {"mode": "required", "ca": self.root.cert, "crl": str(self.empty)}
        proxy = Proxy({
            "listeners": [listener({"certificates": [certs.server().entry()], "client_auth": client_auth})],
            "backends": {"back": [backend.address]},
        })  # fmt: skip
        proxy.launch()
        self.assertEqual(proxy.wait_exit(), 1)
        self.assertRegex(proxy.log(), r"error: .*empty\.pem")

    def test_a_reload_takes_a_new_list(self):
        chain = certs.Authority(certs.folder(), "crl-later")
        leaf = chain.leaf("later", client=True)
        path = chain.crl("list.pem")
        proxy = self.start_trusting(chain.cert, [path])
        self.assertTrue(self.admits(proxy, leaf))
        chain.revoke(leaf)
        chain.crl("list.pem")
        self.assertTrue(self.admits(proxy, leaf), "the list in use is the one that was loaded")
        proxy.reload()
        self.assertFalse(self.admits(proxy, leaf))
        self.assertRegex(self.verify_error, "(?i)revoked")


if __name__ == "__main__":
    unittest.main()
