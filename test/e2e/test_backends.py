"""Towards backends: TLS with verification, and which server is chosen."""

import os
import socket
import tempfile
import threading
import unittest

import certs
import modes
from backends import identify, say, say_and_close
from harness import EndToEnd, until
from streams import connect_plain, connect_tls


class TlsToBackends(EndToEnd):
    def start_to(self, backend_tls, certificate=None, serve=say_and_close(b"hello"), **context):
        self.backend = self.start_backend(serve, tls=certs.server_context(certificate, **context))
        return self.start_proxy({
            "listeners": [modes.PLAIN.listener()],
            "backends": {"back": {"servers": [self.backend.address], "tls": backend_tls}},
        })  # fmt: skip

    def answer(self, proxy):
        stream = self.opened(connect_plain(proxy.address()))
        try:
            stream.send(b"hi")
        except OSError:
            pass
        received = stream.read_to_end()
        if received.length:
            stream.finish()
        return received

    def assert_rejected(self, proxy):
        self.assertEqual(self.answer(proxy).length, 0)
        line = proxy.session(reason="backend_rejected")
        self.assertEqual(line["side"], "backend")
        return line

    def test_verification_is_on_by_default_and_the_systems_bundle_does_not_know_our_authority(self):
        line = self.assert_rejected(self.start_to(True))
        self.assertRegex(line["verify_error"], r"(?i)issuer|self.signed|verify")

    def test_a_certificate_of_another_authority_is_rejected(self):
        line = self.assert_rejected(self.start_to({"ca": certs.clients().cert, "server_name": "backend.test"}))
        self.assertEqual((line["alert_dir"], line["alert_leg"]), ("sent", "backend"))

    def test_a_certificate_for_another_name_is_rejected(self):
        line = self.assert_rejected(self.start_to({"ca": certs.root().cert, "server_name": "other.test"}))
        self.assertRegex(line["verify_error"], r"(?i)host")

    def test_an_address_must_be_in_the_certificate_when_no_name_is_configured(self):
        self.assert_rejected(self.start_to({"ca": certs.root().cert}))
        with_address = certs.root().leaf("addressed", ["127.0.0.1"])
        proxy = self.start_to({"ca": certs.root().cert}, with_address)
        self.assertEqual(self.answer(proxy).head, b"hello")

    def test_an_expired_certificate_is_rejected(self):
        expired = certs.root().leaf("backend.test", file="expired", first_day=-20, last_day=-10)
        line = self.assert_rejected(self.start_to({"ca": certs.root().cert, "server_name": "backend.test"}, expired))
        self.assertRegex(line["verify_error"], r"(?i)expired")

    def test_verification_can_be_switched_off(self):
        self.assertEqual(self.answer(self.start_to({"verify": False})).head, b"hello")

    def test_a_name_is_asked_for_and_the_protocol_offered(self):
        seen = []

        def serve(stream):
            seen.append((names[-1], stream.tls.selected_alpn_protocol()))
            return say_and_close(b"hello")(stream)

        names = []
        context = certs.server_context(alpn=["h2"])
        context.sni_callback = lambda tls, name, ctx: names.append(name)
        backend = self.start_backend(serve, tls=context)
        proxy = self.start_proxy({
            "listeners": [modes.PLAIN.listener()],
            "backends": {"back": {
                "servers": [backend.address],
                "tls": {"ca": certs.root().cert, "server_name": "backend.test", "alpn": ["h2"]},
            }},
        })  # fmt: skip
        self.assertEqual(self.answer(proxy).head, b"hello")
        self.assertEqual(seen, [("backend.test", "h2")])

    def test_our_certificate_is_shown_to_a_backend_that_asks(self):
        shown = []

        def serve(stream):
            shown.append(dict(pair[0] for pair in stream.tls.getpeercert()["subject"])["commonName"])
            return say_and_close(b"hello")(stream)

        tls = {"ca": certs.root().cert, "server_name": "backend.test"}
        proxy = self.start_to({**tls, "certificate": certs.alice().entry()}, serve=serve,
                              client_ca=certs.clients().cert)  # fmt: skip
        self.assertEqual(self.answer(proxy).head, b"hello")
        self.assertEqual(shown, ["alice"])
        proxy = self.start_to(tls, serve=serve, client_ca=certs.clients().cert)
        self.assertEqual(self.answer(proxy).length, 0)
        line = proxy.session(side="backend")
        self.assertEqual((line["alert_dir"], line["alert_leg"]), ("received", "backend"))

    def test_a_backend_that_does_not_speak_tls_is_told_from_one_that_is_rejected(self):
        backend = self.start_backend(say(b"220 plain text\r\n"))
        proxy = self.start_proxy({
            "listeners": [modes.PLAIN.listener()],
            "backends": {"back": {"servers": [backend.address], "tls": {"ca": certs.root().cert}}},
        })  # fmt: skip
        self.assertEqual(self.answer(proxy).length, 0)
        self.assertEqual(proxy.session()["reason"], "backend_tls_failed")


class Servers(EndToEnd):
    def start_servers(self, servers, **backend):
        return self.start_proxy({
            "listeners": [modes.PLAIN.listener()],
            "backends": {"back": {"servers": servers, **backend}},
        })  # fmt: skip

    def who_answers(self, proxy):
        stream = connect_plain(proxy.address())
        stream.send(b"who?")
        answer = stream.read_to_end()
        stream.close()
        return answer.head

    def test_the_next_server_is_tried_when_connecting_fails(self):
        good = self.start_backend(identify(b"good"))
        with socket.socket() as reserved:  # bound and not listening: connecting to it is refused
            reserved.bind(("127.0.0.1", 0))
            refusing = "127.0.0.1:%d" % reserved.getsockname()[1]
            proxy = self.start_servers([{"address": refusing, "weight": 100}, good.address])
            for _ in range(5):
                self.assertEqual(self.who_answers(proxy), b"good")
            until(lambda: len(proxy.sessions()) == 5, "five access lines")
            self.assertEqual(proxy.sessions()[0]["tries"], 2)
            self.assertEqual({line["server"] for line in proxy.sessions()}, {good.address})
            proxy = self.start_servers([refusing])
            self.assertEqual(self.who_answers(proxy), b"")
            self.assertEqual(proxy.session()["reason"], "no_backend")

    def test_no_other_server_is_tried_once_bytes_went_to_one(self):
        taker, other = self.start_backend(lambda stream: stream.recv()), self.start_backend(identify(b"other"))
        proxy = self.start_servers([{"address": taker.address, "weight": 100}, other.address])
        self.assertEqual(self.who_answers(proxy), b"")
        self.assertEqual(other.connections, [])

    def test_weights_share_out_the_sessions_and_a_server_marked_down_gets_none(self):
        backends = [self.start_backend(identify(name)) for name in (b"three", b"one", b"down")]
        proxy = self.start_servers([
            {"address": backends[0].address, "weight": 3},
            {"address": backends[1].address, "weight": 1},
            {"address": backends[2].address, "weight": 5, "down": True},
        ])  # fmt: skip
        answers = [self.who_answers(proxy) for _ in range(12)]
        self.assertEqual((answers.count(b"three"), answers.count(b"one")), (9, 3))

    def test_a_backup_serves_only_while_no_other_can(self):
        primary, backup = self.start_backend(identify(b"primary")), self.start_backend(identify(b"backup"))
        proxy = self.start_servers([
            {"address": primary.address, "max_fails": 1, "fail_timeout": "1h"},
            {"address": backup.address, "backup": True},
        ])  # fmt: skip
        self.assertEqual({self.who_answers(proxy) for _ in range(4)}, {b"primary"})
        primary.stop()
        self.assertEqual({self.who_answers(proxy) for _ in range(4)}, {b"backup"})

    def test_a_unix_socket_backend_is_reached(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-"))
        path = f"{folder}/back.sock"
        self.start_backend(identify(b"socket"), unix=path)
        os.chmod(folder, 0o755)  # the worker that connects has given up its rights
        os.chmod(path, 0o777)
        proxy = self.start_servers([f"unix:{path}"])
        self.assertEqual(self.who_answers(proxy), b"socket")

    def connect(self, proxy, listener):
        return self.opened(connect_tls(proxy.address(listener), certs.client_context(), "front.test"))

    def test_the_built_in_backends_answer(self):
        proxy = self.start_proxy({
            "listeners": [modes.TERMINATE.listener(to="hello"), modes.TERMINATE.listener(to="mirror", name="mirror")],
            "backends": {"hello": {"respond": "hello over TLS\n"}, "mirror": {"echo": True}},
        })  # fmt: skip
        self.assertEqual(self.connect(proxy, "front").read_to_end().head, b"hello over TLS\n")
        mirror = self.connect(proxy, "mirror")
        data = bytes(range(256)) * 4096
        sender = threading.Thread(target=lambda: (mirror.send(data), mirror.finish()))
        sender.start()
        received = mirror.read_to_end()
        sender.join()
        self.assertEqual((received.length, received.ending), (len(data), "orderly"))


if __name__ == "__main__":
    unittest.main()
