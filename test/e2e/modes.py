"""The four ways a connection can go through the proxy, so that a claim is tested in each of them."""

import dataclasses

import certs
from backends import Backend
from streams import connect_plain, connect_tls


@dataclasses.dataclass(frozen=True)
class Mode:
    name: str
    client_tls: bool  # the client speaks TLS
    terminates: bool  # the proxy ends the client's TLS
    backend_tls: bool  # the backend speaks TLS

    def listener(self, to="back", name="front", **more):
        entry = {"name": name, "bind": "127.0.0.1:0", "to": to, **more}
        if self.terminates:
            entry["tls"] = {"certificates": [certs.server().entry()]}
        elif self.client_tls:
            entry["tls"] = "passthrough"
        return entry

    def upstream(self, address):
        """The entry under `backends`."""
        entry = {"servers": [address]}
        if self.terminates and self.backend_tls:
            entry["tls"] = {"ca": certs.root().cert, "server_name": "backend.test"}
        return entry

    def configuration(self, address, **listener):
        return {"listeners": [self.listener(**listener)], "backends": {"back": self.upstream(address)}}

    def backend(self, serve, **options):
        return Backend(serve, tls=certs.server_context() if self.backend_tls else None, **options)

    def connect(self, proxy, listener="front", **options):
        """A client's stream through `proxy`, with its handshake done when there is one."""
        if not self.client_tls:
            return connect_plain(proxy.address(listener), **options)
        name = "front.test" if self.terminates else "backend.test"
        return connect_tls(proxy.address(listener), certs.client_context(), name, **options)

    @property
    def passthrough(self):
        return self.client_tls and not self.terminates


PLAIN = Mode("plain", client_tls=False, terminates=False, backend_tls=False)
TERMINATE = Mode("terminate", client_tls=True, terminates=True, backend_tls=False)
TLS_TO_TLS = Mode("tls-to-tls", client_tls=True, terminates=True, backend_tls=True)
PASSTHROUGH = Mode("passthrough", client_tls=True, terminates=False, backend_tls=True)

ALL = (PLAIN, TERMINATE, TLS_TO_TLS, PASSTHROUGH)


def in_all(backends, **listener):
    """One configuration with a listener per mode, named as the mode; `backends` by mode name."""
    return {
        "listeners": [mode.listener(to=mode.name, name=mode.name, **listener) for mode in ALL],
        "backends": {mode.name: mode.upstream(backends[mode.name].address) for mode in ALL},
    }
