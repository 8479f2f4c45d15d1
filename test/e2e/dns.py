"""A DNS server for tests: answers A and AAAA from a table that the test changes as it goes."""

import socket
import struct
import threading

NXDOMAIN, REFUSED, SILENCE = "nxdomain", "refused", "silence"
_CODES = {NXDOMAIN: 3, REFUSED: 5}
_A, _AAAA = 1, 28


class NameServer:
    """`answers` maps (name, "A" or "AAAA") to a list of addresses or to one of the words above; what is
    not in it has no records of that type.
    """

    def __init__(self, answers, ttl=1):
        self.answers, self.ttl = answers, ttl
        self.queries = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _run(self):
        while True:
            packet, peer = self._socket.recvfrom(4096)
            if not packet:
                return
            answer = self._answer(packet)
            if answer is not None:
                self._socket.sendto(answer, peer)

    def _answer(self, packet):
        name, place = [], 12
        while packet[place]:
            name.append(packet[place + 1 : place + 1 + packet[place]].decode())
            place += packet[place] + 1
        question = packet[12 : place + 5]
        kind = struct.unpack("!H", packet[place + 1 : place + 3])[0]
        key = (".".join(name).lower(), {_A: "A", _AAAA: "AAAA"}.get(kind, "other"))
        self.queries.append(key)
        found = self.answers.get(key, [])
        if found == SILENCE:
            return None
        if isinstance(found, str):
            return packet[:2] + struct.pack("!HHHHH", 0x8180 | _CODES[found], 1, 0, 0, 0) + question
        head = packet[:2] + struct.pack("!HHHHH", 0x8180, 1, len(found), 0, 0)
        records = b""
        for address in found:
            family = socket.AF_INET if kind == _A else socket.AF_INET6
            data = socket.inet_pton(family, address)
            records += b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, self.ttl, len(data)) + data
        return head + question + records
