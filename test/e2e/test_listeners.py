"""Where a listener can be bound, and that it serves there."""

import pathlib
import socket
import tempfile
import unittest

from backends import identify
from harness import EndToEnd
from streams import connect_plain


def consecutive_ports(count):
    """The first of `count` ports in a row that were free a moment ago."""
    for first in range(21000, 31000, count):
        sockets = [socket.socket() for _ in range(count)]
        try:
            for offset, sock in enumerate(sockets):
                sock.bind(("127.0.0.1", first + offset))
            return first
        except OSError:
            continue
        finally:
            for sock in sockets:
                sock.close()
    raise AssertionError("no free ports in a row")


class Binds(EndToEnd):
    def start(self, *listeners):
        self.backend = self.start_backend(identify(b"back"), host="::1")
        return self.start_proxy({
            "listeners": [{"to": "back", **listener} for listener in listeners],
            "backends": {"back": [self.backend.address]},
        })  # fmt: skip

    def assert_served(self, address):
        stream = connect_plain(address)
        stream.send(b"who?")
        self.assertEqual(stream.read_to_end().head, b"back")
        stream.close()

    def test_an_ipv6_listener_takes_ipv4_clients_only_when_told_so(self):
        proxy = self.start(
            {"name": "six", "bind": "[::]:0"}, {"name": "both", "bind": {"address": "[::]:0", "v6only": False}}
        )
        self.assert_served(("::1", proxy.port("six")))
        with self.assertRaises(ConnectionRefusedError):
            connect_plain(("127.0.0.1", proxy.port("six")))
        self.assert_served(("::1", proxy.port("both")))
        self.assert_served(("127.0.0.1", proxy.port("both")))
        proxy.session(listener="both", local=f"127.0.0.1:{proxy.port('both')}")
        for line in proxy.sessions(listener="both"):
            self.assertNotIn("::ffff:", line["client"], "IPv4 clients have one spelling")

    def test_a_unix_socket_serves_and_goes_with_the_proxy(self):
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="tlsproxy-e2e-"))
        path = f"{folder}/front.sock"
        proxy = self.start({"name": "front", "bind": f"unix:{path}"})
        self.assert_served(path)
        self.assertTrue(proxy.session()["local"].endswith(path))
        proxy.reload()
        self.assert_served(path)
        proxy.stop()
        self.assertFalse(pathlib.Path(path).exists())

    def test_a_range_of_ports_and_several_addresses_are_one_listener(self):
        first = consecutive_ports(4)
        proxy = self.start({"name": "front", "bind": [f"127.0.0.1:{first}-{first + 3}", "[::1]:0", "127.0.0.2:0"]})
        for port in range(first, first + 4):
            self.assert_served(("127.0.0.1", port))
        others = proxy.ports("front")[4:]
        self.assert_served(("::1", others[0]))
        self.assert_served(("127.0.0.2", others[1]))


if __name__ == "__main__":
    unittest.main()
