"""How a session ends: half-close, close_notify, truncation and reset, in every mode (cases 1 and 3)."""

import hashlib
import subprocess
import unittest

import modes
from backends import record_patiently, say, say_and_close, stay
from harness import EndToEnd, pause, until
from streams import ALERT, ORDERLY, RESET, TRUNCATED

MIB = bytes(range(256)) * 4096
MIB_SHA256 = hashlib.sha256(MIB).hexdigest()


def answer_late(stream):
    """Reads the request to its end, thinks, then sends 1 MiB and ends."""
    request = stream.read_to_end()
    pause(1, "a backend that answers only after the client has ended")
    stream.send(MIB)
    stream.finish()
    return request


def say_and_reset(text):
    def serve(stream):
        stream.send(text)
        stream.recv()  # the client has the text before the reset
        stream.reset()

    return serve


def say_and_cut(text):
    def serve(stream):
        stream.send(text)
        stream.recv()
        stream.cut()
        return stream.read_to_end()

    return serve


class EndsInEveryMode:
    """The claims; the subclasses below say in which mode."""

    mode = None

    def start(self, serve, **listener):
        backend = self.enterContext(self.mode.backend(serve))
        proxy = self.start_proxy(self.mode.configuration(backend.address, **listener))
        return backend, proxy

    def connect(self, proxy, **options):
        return self.opened(self.mode.connect(proxy, **options))

    def test_a_client_that_ended_its_direction_still_gets_the_whole_answer(self):
        backend, proxy = self.start(answer_late)
        baseline = proxy.descriptors()
        client = self.connect(proxy)
        client.send(b"req\n")
        client.finish()
        answer = client.read_to_end()
        self.assertEqual((answer.length, answer.sha256, answer.ending), (len(MIB), MIB_SHA256, ORDERLY))
        request = backend.outcome()
        self.assertEqual((request.head, request.ending), (b"req\n", ORDERLY))
        line = proxy.session(listener="front")
        self.assertEqual(line["reason"], "finished")
        if not self.mode.passthrough:
            self.assertEqual((line["bytes_from_client"], line["bytes_to_backend"]), (4, 4))
            self.assertEqual((line["bytes_from_backend"], line["bytes_to_client"]), (len(MIB), len(MIB)))
        until(lambda: proxy.descriptors() == baseline, "the descriptors to be back at the baseline", 2)

    def test_a_backend_that_ended_its_direction_still_gets_the_whole_upload(self):
        backend, proxy = self.start(say_and_close(b"220 banner\r\n"))
        baseline = proxy.descriptors()
        client = self.connect(proxy)
        banner = client.read_to_end()
        self.assertEqual((banner.head, banner.ending), (b"220 banner\r\n", ORDERLY))
        pause(1, "the backend has ended and the client has not yet begun")
        client.send(MIB)
        client.finish()
        upload = backend.outcome()
        self.assertEqual((upload.length, upload.sha256, upload.ending), (len(MIB), MIB_SHA256, ORDERLY))
        self.assertEqual(proxy.session(listener="front")["reason"], "finished")
        until(lambda: proxy.descriptors() == baseline, "the descriptors to be back at the baseline", 2)

    def test_without_half_close_the_end_of_one_side_ends_the_session(self):
        backend, proxy = self.start(record_patiently, half_close=False)
        client = self.connect(proxy)
        client.send(b"req\n")
        client.finish()
        self.assertEqual(client.read_to_end().ending, TRUNCATED if self.mode.passthrough else ORDERLY)
        request = backend.outcome()
        self.assertEqual((request.head, request.ending), (b"req\n", ORDERLY))
        self.assertEqual(proxy.session(listener="front")["reason"], "finished")

    def test_a_half_closed_session_ends_after_the_half_close_timeout_without_a_byte(self):
        def never_answer(stream):
            stream.read_to_end()
            stay(stream)

        _, proxy = self.start(never_answer, timeouts={"half_close": "1s"})
        client = self.connect(proxy)
        client.send(b"req\n")
        client.finish()
        self.assertIn(client.read_to_end(seconds=10).ending, (ORDERLY, TRUNCATED))
        line = proxy.session(listener="front")
        self.assertEqual(line["reason"], "half_close_timeout")
        self.assertGreater(line["total_ms"], 900)

    def test_the_end_at_the_idle_timeout_is_told_in_order(self):
        _, proxy = self.start(say(b"hello"), timeouts={"idle": "1s"})
        client = self.connect(proxy)
        self.assertEqual(client.read_exactly(5), b"hello")
        ending = client.read_to_end().ending
        self.assertEqual(ending, TRUNCATED if self.mode.passthrough else ORDERLY)
        line = proxy.session(listener="front")
        self.assertEqual((line["reason"], line["side"]), ("idle_timeout", "proxy"))

    def test_the_end_at_the_drain_limit_of_a_reload_is_told_in_order(self):
        backend = self.enterContext(self.mode.backend(say(b"hello")))
        configuration = {**self.mode.configuration(backend.address), "drain_after_reload": "1s"}
        proxy = self.start_proxy(configuration)
        client = self.connect(proxy)
        self.assertEqual(client.read_exactly(5), b"hello")
        proxy.reload()
        ending = client.read_to_end().ending
        self.assertEqual(ending, TRUNCATED if self.mode.passthrough else ORDERLY)
        self.assertEqual(backend.outcome().ending, TRUNCATED if self.mode.passthrough else ORDERLY)
        line = proxy.session(listener="front")
        self.assertEqual((line["reason"], line["side"]), ("drain", "proxy"))

    def test_a_reset_by_the_client_is_passed_on_after_the_bytes_before_it(self):
        backend, proxy = self.start(say_ready_and_record)
        client = self.connect(proxy)
        client.read_exactly(5)
        client.send(b"0123456789")
        client.reset()
        received = backend.outcome()
        self.assertEqual(received.head, b"0123456789")
        self.assertEqual(received.ending, TRUNCATED if self.mode is modes.TLS_TO_TLS else RESET)
        line = proxy.session(listener="front")
        self.assertEqual((line["reason"], line["side"]), ("reset", "client"))

    def test_a_reset_by_the_backend_is_not_laundered_into_an_orderly_end(self):
        _, proxy = self.start(say_and_reset(b"hello"))
        client = self.connect(proxy)
        self.assertEqual(client.read_exactly(5), b"hello")
        client.send(b"go")
        self.assertEqual(client.read_to_end().ending, TRUNCATED if self.mode.terminates else RESET)
        line = proxy.session(listener="front")
        self.assertEqual((line["reason"], line["side"]), ("reset", "backend"))


def say_ready_and_record(stream):
    stream.send(b"ready")
    return stream.read_to_end()


class PlainToPlain(EndsInEveryMode, EndToEnd):
    mode = modes.PLAIN


class TlsToPlain(EndsInEveryMode, EndToEnd):
    mode = modes.TERMINATE


class TlsToTls(EndsInEveryMode, EndToEnd):
    mode = modes.TLS_TO_TLS


class Passthrough(EndsInEveryMode, EndToEnd):
    mode = modes.PASSTHROUGH


class Truncation(EndToEnd):
    """A TLS leg that ends without close_notify may lack bytes: its peer must not believe otherwise."""

    def start(self, mode, serve):
        backend = self.enterContext(mode.backend(serve))
        proxy = self.start_proxy(mode.configuration(backend.address))
        return backend, proxy, self.opened(mode.connect(proxy))

    def truncate_by_client(self, mode):
        backend, proxy, client = self.start(mode, say_ready_and_record)
        client.read_exactly(5)
        client.send(b"0123456789")
        client.cut()
        received = backend.outcome()
        self.assertEqual(received.head, b"0123456789")
        return received.ending, proxy.session(listener="front")

    def test_a_client_that_truncates_resets_a_plain_backend_after_its_bytes(self):
        ending, line = self.truncate_by_client(modes.TERMINATE)
        self.assertEqual(ending, RESET)
        self.assertEqual((line["reason"], line["side"]), ("truncated", "client"))

    def test_a_client_that_truncates_is_a_truncation_for_a_tls_backend(self):
        ending, line = self.truncate_by_client(modes.TLS_TO_TLS)
        self.assertEqual(ending, TRUNCATED)
        self.assertEqual((line["reason"], line["side"]), ("truncated", "client"))

    def test_a_truncation_passes_through_as_it_is(self):
        ending, _ = self.truncate_by_client(modes.PASSTHROUGH)
        self.assertEqual(ending, TRUNCATED)

    def test_a_backend_that_truncates_is_a_truncation_for_the_client(self):
        _, proxy, client = self.start(modes.TLS_TO_TLS, say_and_cut(b"hello"))
        self.assertEqual(client.read_exactly(5), b"hello")
        client.send(b"go")
        self.assertEqual(client.read_to_end().ending, TRUNCATED)
        line = proxy.session(listener="front")
        self.assertEqual((line["reason"], line["side"]), ("truncated", "backend"))

    def test_a_backend_that_truncates_resets_a_plain_client(self):
        backend = self.enterContext(modes.TLS_TO_TLS.backend(say_and_cut(b"hello")))
        configuration = modes.TLS_TO_TLS.configuration(backend.address)
        del configuration["listeners"][0]["tls"]
        proxy = self.start_proxy(configuration)
        client = self.opened(modes.PLAIN.connect(proxy))
        self.assertEqual(client.read_exactly(5), b"hello")
        client.send(b"go")
        self.assertEqual(client.read_to_end().ending, RESET)
        self.assertEqual(proxy.session(listener="front")["reason"], "truncated")

    def test_bytes_that_are_not_tls_in_mid_session_are_a_protocol_error(self):
        backend, proxy, client = self.start(modes.TERMINATE, say_ready_and_record)
        client.read_exactly(5)
        client.sock.sendall(b"no record at all\r\n")
        self.assertIn(client.read_to_end().ending, (ALERT, TRUNCATED, RESET))
        self.assertEqual(backend.outcome().ending, RESET)
        line = proxy.session(listener="front")
        self.assertEqual((line["reason"], line["side"]), ("protocol_error", "client"))


class CloseNotifyOnTheWire(EndToEnd):
    def messages_of_s_client(self, proxy, *options, end_of_input=True):
        done = subprocess.run(
            ["openssl", "s_client", "-connect", "127.0.0.1:%d" % proxy.port(), "-servername", "x", "-msg", *options],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        return done.stdout

    def test_s_client_receives_close_notify_after_the_last_data(self):
        backend = self.start_backend(say_and_close(b"hello"))
        proxy = self.start_proxy(modes.TERMINATE.configuration(backend.address))
        for version in ("-tls1_2", "-tls1_3"):
            with self.subTest(version=version):
                output = self.messages_of_s_client(proxy, version, "-ign_eof")
                self.assertRegex(output, r"hello")
                self.assertRegex(output, r"<<< .*Alert \[length 0002\], warning close_notify")

    def test_s_client_receives_no_close_notify_when_the_backend_reset(self):
        def serve(stream):
            stream.send(b"hello")
            pause(0.2, "the text is on its way before the reset")
            stream.reset()

        backend = self.start_backend(serve)
        proxy = self.start_proxy(modes.TERMINATE.configuration(backend.address))
        output = self.messages_of_s_client(proxy, "-ign_eof")
        self.assertRegex(output, r"hello")
        self.assertNotRegex(output, r"<<< .*close_notify")

    def test_an_idle_end_reaches_both_legs_in_order(self):
        backend = self.start_backend(say(b"hello"))
        proxy = self.start_proxy(modes.TERMINATE.configuration(backend.address, timeouts={"idle": "1s"}))
        output = self.messages_of_s_client(proxy, "-ign_eof")
        self.assertRegex(output, r"<<< .*close_notify")
        self.assertEqual(backend.outcome().ending, ORDERLY)


if __name__ == "__main__":
    unittest.main()
