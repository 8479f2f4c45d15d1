"""What the tests of TLS share: a terminating listener, clients for it, and who is refused."""

import ssl

import certs
from backends import say_and_close
from harness import EndToEnd
from streams import connect_tls


def listener(tls, **more):
    return {"name": "front", "bind": "127.0.0.1:0", "tls": tls, "to": "back", **more}


class TlsCase(EndToEnd):
    def start(self, tls, serve=say_and_close(b"hello"), **more):
        self.backend = self.start_backend(serve)
        return self.start_proxy({"listeners": [listener(tls, **more)], "backends": {"back": [self.backend.address]}})

    def connect(self, proxy, name="front.test", context=None, listener="front"):
        return self.opened(connect_tls(proxy.address(listener), context or certs.client_context(), name))

    def refused(self, proxy, name="front.test", context=None):
        """Whether the proxy does not let this client have a byte. In TLS 1.3 the refusal follows the
        client's own handshake.
        """
        try:
            stream = self.connect(proxy, name, context)
        except (ssl.SSLError, ConnectionError):
            return True
        return stream.read_to_end().length == 0
