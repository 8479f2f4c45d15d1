"""Towards clients: which certificate, which policy, and what the log says of it."""

import os
import re
import ssl
import subprocess
import threading
import unittest

import certs
import hellos
import modes
from backends import echo, record, say, say_and_close
from harness import until
from streams import connect_plain, connect_tls
from tls_case import TlsCase, listener

TLS12, TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


class CertificateChoice(TlsCase):
    @classmethod
    def setUpClass(cls):
        root = certs.root()
        cls.by_name = {
            "default": root.leaf("default.test", ["default.test", "Front.Test"]),
            "exact": root.leaf("a.shop.test"),
            "wildcard": root.leaf("any.shop.test", ["*.shop.test"]),
            "rsa": certs.Authority(certs.folder(), "rsa-root", kind="rsa").leaf("both.test", kind="rsa"),
            "ecdsa": root.leaf("both.test", kind="ec"),
        }

    def subject(self, proxy, name, *options):
        """The subject of the certificate shown to s_client."""
        shown = subprocess.run(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % proxy.port(), *options]
            + (["-servername", name] if name else ["-noservername"]),
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
        ).stdout  # fmt: skip
        found = re.search(r"subject=.*CN = ([^,\s]+)", shown)
        return found and found.group(1)

    def start_with_all(self):
        return self.start({"certificates": [certificate.entry() for certificate in self.by_name.values()]})

    def test_exact_name_before_wildcard_before_the_first_in_any_case(self):
        proxy = self.start_with_all()
        for name, subject in {
            "a.shop.test": "a.shop.test",
            "A.Shop.TEST": "a.shop.test",
            "b.shop.test": "any.shop.test",
            "B.SHOP.test": "any.shop.test",
            "b.b.shop.test": "default.test",
            "shop.test": "default.test",
            "front.test": "default.test",
            None: "default.test",
        }.items():
            with self.subTest(name=name):
                self.assertEqual(self.subject(proxy, name), subject)

    def test_a_name_with_rsa_and_ecdsa_serves_whichever_the_client_can_verify(self):
        proxy = self.start_with_all()
        for signature, kind in (("ECDSA+SHA256", "ecdsa"), ("RSA-PSS+SHA256:RSA+SHA256", "rsa")):
            for version in ("-tls1_2", "-tls1_3"):
                with self.subTest(kind=kind, version=version):
                    shown = subprocess.run(
                        ["openssl", "s_client", "-connect", "127.0.0.1:%d" % proxy.port(), version, "-servername",
                         "both.test", "-sigalgs", signature],
                        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
                    ).stdout  # fmt: skip
                    self.assertRegex(shown, "Peer signature type: " + {"ecdsa": "ECDSA", "rsa": "RSA"}[kind])

    def test_an_encrypted_key_is_opened_with_a_passphrase_of_its_file(self):
        certificate = self.by_name["exact"]
        encrypted = certs.folder() / "encrypted.key"
        certs.openssl("pkey", "-in", certificate.key, "-aes256", "-passout", "pass:second one", "-out", encrypted)
        passphrases = certs.folder() / "passphrases"
        passphrases.write_text("first one\nsecond one\n")
        entry = {"chain": certificate.chain, "key": str(encrypted), "password_file": str(passphrases)}
        proxy = self.start({"certificates": [entry]})
        self.assertEqual(self.subject(proxy, "x"), "a.shop.test")

    def test_a_self_signed_certificate_serves_for_a_first_try_and_is_the_same_in_every_worker(self):
        backend = self.start_backend(say_and_close(b"hello"))
        proxy = self.start_proxy({
            "workers": 2,
            "listeners": [listener({"certificates": [{"self_signed": True}]})],
            "backends": {"back": [backend.address]},
        })  # fmt: skip
        shown = {ssl.get_server_certificate(proxy.address()) for _ in range(12)}
        self.assertEqual(len(shown), 1)


class Negotiation(TlsCase):
    def start_default(self, **policy):
        return self.start({"certificates": [certs.server().entry()], **policy})

    def test_versions_outside_the_limits_are_refused(self):
        proxy = self.start_default(min_version="TLSv1.3")
        self.assertTrue(self.refused(proxy, context=certs.client_context(version=TLS12)))
        self.assertEqual(self.connect(proxy, context=certs.client_context(version=TLS13)).tls.version(), "TLSv1.3")
        line = proxy.session(reason="handshake_failed")
        self.assertEqual((line["side"], line["alert"], line["alert_dir"], line["alert_leg"]),
                         ("client", "protocol_version", "sent", "client"))  # fmt: skip
        proxy = self.start_default(max_version="TLSv1.2")
        self.assertEqual(self.connect(proxy).tls.version(), "TLSv1.2")
        self.assertTrue(self.refused(proxy, context=certs.client_context(version=TLS13)))

    def test_alpn_is_the_first_of_our_list_that_the_client_offers(self):
        proxy = self.start_default(alpn=["h2", "http/1.1"])
        for offered, chosen in ((["http/1.1", "h2"], "h2"), (["http/1.1"], "http/1.1"), ([], None)):
            with self.subTest(offered=offered):
                stream = self.connect(proxy, context=certs.client_context(alpn=offered))
                self.assertEqual(stream.tls.selected_alpn_protocol(), chosen)
                stream.read_to_end()
        self.assertTrue(self.refused(proxy, context=certs.client_context(alpn=["imap"])))
        line = proxy.session(reason="handshake_failed")
        self.assertEqual(line["alert"], "no_application_protocol")

    def test_ciphers_and_groups_are_those_of_the_configuration(self):
        proxy = self.start_default(ciphersuites="TLS_CHACHA20_POLY1305_SHA256", groups="P-384",
                                   ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")  # fmt: skip
        stream = self.connect(proxy)
        self.assertEqual(stream.tls.cipher()[0], "TLS_CHACHA20_POLY1305_SHA256")
        stream.read_to_end()
        stream.finish()
        line = proxy.session(reason="finished")
        self.assertEqual(line["cipher"], "TLS_CHACHA20_POLY1305_SHA256")
        self.assertRegex(line["group"], r"(?i)secp384r1|p-384")
        stream = self.connect(proxy, context=certs.client_context(version=TLS12))
        self.assertEqual(stream.tls.cipher()[0], "ECDHE-ECDSA-AES256-GCM-SHA384")


class PolicyPerName(TlsCase):
    """No client reaches a backend on another name's rules."""

    def start_pay(self, default=None, pay=None, serve=say_and_close(b"hello")):
        tls = {
            "certificates": [certs.server().entry()],
            **(default or {}),
            "hosts": [{
                "sni": ["pay.front.test", "*.pay.front.test"],
                **(pay or {"client_auth": {"mode": "required", "ca": certs.clients().cert}}),
            }],
        }  # fmt: skip
        return self.start(tls, serve)

    def test_a_name_can_demand_a_certificate_that_the_listener_does_not(self):
        proxy = self.start_pay()
        self.assertFalse(self.refused(proxy, "front.test"))
        for name in ("pay.front.test", "PAY.Front.Test"):
            self.assertTrue(self.refused(proxy, name))
        alice = certs.client_context(certificate=certs.alice())
        self.assertFalse(self.refused(proxy, "pay.front.test", alice))
        self.assertEqual(len(self.backend.connections), 2)

    def test_a_name_can_do_without_the_certificate_that_the_listener_demands(self):
        required = {"client_auth": {"mode": "required", "ca": certs.clients().cert}}
        proxy = self.start_pay(required, {"client_auth": {"mode": "none"}})
        self.assertTrue(self.refused(proxy, "front.test"))
        self.assertTrue(self.refused(proxy, None, certs.client_context(verify=False)))
        self.assertFalse(self.refused(proxy, "pay.front.test"))

    def test_a_name_has_its_own_version_limits_and_protocols_and_inherits_the_rest(self):
        proxy = self.start_pay({"alpn": ["http/1.1"]}, {"min_version": "TLSv1.3"})
        old = certs.client_context(version=TLS12, alpn=["http/1.1"])
        self.assertTrue(self.refused(proxy, "pay.front.test", old))
        self.assertFalse(self.refused(proxy, "front.test", old))
        stream = self.connect(proxy, "pay.front.test", certs.client_context(alpn=["http/1.1"]))
        self.assertEqual(stream.tls.selected_alpn_protocol(), "http/1.1")

    def test_a_session_of_the_default_name_is_not_resumed_under_another_names_rules(self):
        proxy = self.start_pay(serve=say(b"hello"))
        for version in (TLS12, TLS13):
            context = certs.client_context(version=version)
            context.check_hostname = False
            stream = self.connect(proxy, "front.test", context)
            stream.read_exactly(5)
            session = stream.tls.session
            self.assertIsNotNone(session)
            try:
                stream = connect_tls(proxy.address(), context, "pay.front.test", session=session)
                self.assertEqual(self.opened(stream).read_to_end().length, 0)
            except (ssl.SSLError, ConnectionError):
                pass

    def retried(self, proxy, second_name):
        """Sends the hello, answers the HelloRetryRequest for P-256 with one for `second_name`, and returns
        the type of the next record that is not a change_cipher_spec, with its body.
        """
        stream = self.opened(connect_plain(proxy.address()))
        stream.send(hellos.HELLO)
        kind, body = self.record(stream)
        self.assertEqual((kind, body[0]), (22, 2), "a HelloRetryRequest is a ServerHello")
        self.assertEqual(body[6:14].hex(), "cf21ad74e59a6111", "the special random of a HelloRetryRequest")
        stream.send(hellos.second_hello(second_name))
        while True:
            kind, body = self.record(stream)
            if kind != 20:
                return kind, body

    def record(self, stream):
        header = stream.read_exactly(5)
        return header[0], stream.read_exactly(int.from_bytes(header[3:5], "big"))

    def test_a_second_hello_that_names_another_host_is_refused(self):
        tls = {
            "certificates": [certs.server().entry()],
            "groups": "P-256",
            "hosts": [{"sni": "pay.testing", "client_auth": {"mode": "required", "ca": certs.clients().cert}}],
        }
        proxy = self.start(tls)
        kind, body = self.retried(proxy, b"example.com")
        self.assertEqual((kind, body[0]), (22, 2), "an unchanged name goes on to the ServerHello")
        for name in (b"pay.testing", b"example.org"):
            kind, body = self.retried(proxy, name)
            self.assertEqual((kind, body), (21, b"\x02\x2f"), "a fatal alert, illegal_parameter")
        until(lambda: len(proxy.sessions(reason="name_changed")) == 2, "both refusals in the access log")
        line = proxy.sessions(reason="name_changed")[0]
        self.assertEqual((line["side"], line["alert"], line["alert_dir"]), ("client", "illegal_parameter", "sent"))
        self.assertEqual(self.backend.connections, [])


class AccessLines(TlsCase):
    """What the log says of a session, on every path."""

    ALWAYS = ["time", "id", "listener", "client", "local", "route", "server", "bytes_from_client", "bytes_to_client",
              "bytes_from_backend", "bytes_to_backend", "tries", "connect_ms", "first_byte_ms", "total_ms", "reason",
              "side"]  # fmt: skip
    ORDER = ["time", "id", "listener", "client", "local", "sni", "alpn", "tls", "cipher", "group", "resumed",
             "client_cert", "route", "server", "bytes_from_client", "bytes_to_client", "bytes_from_backend",
             "bytes_to_backend", "tries", "handshake_ms", "connect_ms", "first_byte_ms", "total_ms", "reason", "side",
             "alert", "alert_dir", "alert_leg", "verify_error"]  # fmt: skip

    def line(self, mode):
        backend = self.enterContext(mode.backend(echo))
        proxy = self.start_proxy(mode.configuration(backend.address))
        client = self.opened(mode.connect(proxy))
        client.send(b"12345")
        client.read_exactly(5)
        local = client.local_address()
        client.finish()
        client.read_to_end()
        line = proxy.session()
        self.assertEqual(line["client"], local)
        self.assertEqual(line["server"], backend.address)
        self.assertEqual(line["local"], "127.0.0.1:%d" % proxy.port())
        return line

    def test_every_mode_logs_its_facts_in_the_documented_order(self):
        for mode in modes.ALL:
            with self.subTest(mode=mode.name):
                line = self.line(mode)
                keys = list(line)
                self.assertEqual(keys, [key for key in self.ORDER if key in line])
                self.assertLessEqual(set(self.ALWAYS), set(keys))
                self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}(Z|\+00:00)$")
                self.assertRegex(line["id"], r"^[0-9a-f]{16}$")
                self.assertEqual((line["route"], line["reason"], line["tries"]), ("back", "finished", 1))
                if mode.terminates:
                    self.assertEqual((line["tls"], line["resumed"], line["sni"]), ("TLSv1.3", False, "front.test"))
                    self.assertIn("cipher", line)
                    self.assertIn("group", line)
                    self.assertGreater(line["handshake_ms"], 0)
                else:
                    self.assertNotIn("tls", line)
                    self.assertNotIn("resumed", line)
                if not mode.passthrough:
                    self.assertEqual({line[key] for key in self.ORDER if key.startswith("bytes")}, {5})

    def test_an_alert_that_the_client_sent_is_logged_with_its_direction(self):
        proxy = self.start({"certificates": [certs.server().entry()]}, echo)
        with self.assertRaises(ssl.SSLError):
            self.connect(proxy, context=certs.client_context(certs.clients().cert))
        line = proxy.session(reason="handshake_failed")
        self.assertEqual((line["alert"], line["alert_dir"], line["alert_leg"]), ("unknown_ca", "received", "client"))

    def test_what_a_peer_chose_cannot_forge_a_line(self):
        backend = self.start_backend(record)
        evil = certs.clients().leaf('mallory" reason=finished', client=True, file="evil")
        tls = {
            "certificates": [certs.server().entry()],
            "client_auth": {"mode": "required", "ca": certs.clients().cert},
        }
        proxy = self.start_proxy({
            "listeners": [listener(tls)],
            "backends": {"back": [backend.address]},
            "log": {"access": {"path": "access.log", "format": "logfmt"}},
        })  # fmt: skip
        stream = self.connect(proxy, context=certs.client_context(certificate=evil))
        stream.send(b"x")
        stream.finish()
        stream.read_to_end()
        text = until(lambda: proxy.access_file.exists() and proxy.access_file.read_text(), "the access line")
        self.assertEqual(text.count("\n"), 1)
        self.assertEqual(len(re.findall(r"(?:^| )reason=", re.sub(r'"(?:[^"\\]|\\.)*"', '""', text))), 1)


class Conversation:
    """A program of OpenSSL's that is typed at, and what it prints."""

    def __init__(self, test, *arguments):
        # Its output is buffered by itself when it goes to no terminal.
        self.process = subprocess.Popen(["stdbuf", "-o0", "openssl", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.printed = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        test.addCleanup(self._end)

    def _read(self):
        while piece := os.read(self.process.stdout.fileno(), 65536):
            self.printed += piece

    def _end(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def type(self, line):
        self.process.stdin.write(line)
        self.process.stdin.flush()

    def expect(self, text):
        """Waits for a match, and forgets what came up to it."""
        found = until(lambda: re.search(text, self.printed), lambda: f"{text} in {self.printed[-2000:]}")
        self.printed = self.printed[found.end() :]
        return found


class KeyUpdates(TlsCase):
    """RFC 8446, 4.6.3, with OpenSSL at the other end: it types K for an update that asks for one of ours."""

    def test_a_client_may_change_keys_and_ask_for_ours(self):
        proxy = self.start_proxy({"listeners": [listener({"certificates": [certs.server().entry()]}, to="echo")],
                                  "backends": {"echo": {"echo": True}}})  # fmt: skip
        for suite in ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"):
            with self.subTest(suite=suite):
                client = Conversation(self, "s_client", "-connect", "127.0.0.1:%d" % proxy.port(), "-servername", "front.test",
                                      "-tls1_3", "-ciphersuites", suite, "-msg")  # fmt: skip
                client.expect(rb"read R BLOCK")
                client.type(b"first\n")
                client.expect(rb"\nfirst\n")
                for key in (b"K\n", b"k\n", b"K\n"):
                    client.type(key)
                    client.expect(rb">>> TLS 1.3, Handshake .length 0005., KeyUpdate")
                    client.type(b"after " + key)
                    shown = client.expect(rb"(?s)^(.*)\nafter " + key).group(1)
                    self.assertEqual(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate" in shown, key == b"K\n")

    def test_a_backend_may_change_keys_and_ask_for_ours(self):
        certificate = certs.server()
        server = Conversation(self, "s_server", "-accept", "127.0.0.1:0", "-cert", certificate.cert, "-key", certificate.key, "-tls1_3")
        port = int(server.expect(rb"ACCEPT 127\.0\.0\.1:(\d+)").group(1))
        proxy = self.start_proxy({"listeners": [{"name": "front", "bind": "127.0.0.1:0", "to": "back"}],
                                  "backends": {"back": {"servers": [f"127.0.0.1:{port}"], "tls": {"verify": False}}}})  # fmt: skip
        client = self.opened(connect_plain(proxy.address("front")))
        client.send(b"first\n")
        server.expect(rb"\nfirst\n")
        for turn in range(3):
            server.type(b"K\n")
            server.expect(rb"SSL_do_handshake -> 1\n")
            server.type(b"after %d\n" % turn)
            self.assertEqual(client.read_exactly(8), b"after %d\n" % turn)
            client.send(b"answer %d\n" % turn)
            server.expect(b"answer %d\n" % turn)


if __name__ == "__main__":
    unittest.main()
