"""ClientHellos as exact bytes, for what no TLS library would send."""

# 209 bytes: SNI example.com, TLS 1.3 and 1.2, groups x25519 and P-256, a key share for x25519.
HELLO = bytes.fromhex(
    "16030100cc010000c803035a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a20a5a5a5a5"
    "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a50010130113021303c02bc02fc02cc030009c0100"
    "006f00000010000e00000b6578616d706c652e636f6d000a00060004001d0017000b00020100000d000e000c04030804"
    "0401050308050501002b00050403040303003300260024001d0020090000000000000000000000000000000000000000"
    "0000000000000000000000002d00020101"
)
MESSAGE = HELLO[5:]  # the handshake message without its record header

# What a client that is not a TLS 1.x client sends first.
HTTP = b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"
CONNECT = b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n"
SSH = b"SSH-2.0-OpenSSH_9.6\r\n"
SSLV2 = bytes.fromhex("802e01030300150000001000002f00003500c02b00c02f00c03000009c0000ff") + b"~" * 16
ALERT_FIRST = bytes.fromhex("15030100020100")
WARNINGS = bytes.fromhex("1503010002015a") * 5000


def named(name):
    """The hello for another name of 11 bytes."""
    assert len(name) == 11
    return HELLO.replace(b"example.com", name)


def records(message, *cuts):
    """The handshake message in TLS records cut at these offsets."""
    edges = [0, *cuts, len(message)]
    return b"".join(
        b"\x16\x03\x01" + (end - begin).to_bytes(2, "big") + message[begin:end]
        for begin, end in zip(edges, edges[1:])
    )


def padded(message, total):
    """The message grown to `total` bytes with the padding extension (RFC 7685)."""
    size = total - len(message) - 4
    extensions = message[93:] + b"\x00\x15" + size.to_bytes(2, "big") + bytes(size)
    body = message[4:91] + len(extensions).to_bytes(2, "big") + extensions
    return b"\x01" + len(body).to_bytes(3, "big") + body


def without_extensions():
    return records(b"\x01" + (87).to_bytes(3, "big") + MESSAGE[4:91])


def second_hello(name=b"example.com"):
    """What answers a HelloRetryRequest for P-256: the same hello with the curve's base point as share."""
    point = bytes.fromhex(
        "046b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
        "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
    )
    old_share = MESSAGE.index(bytes.fromhex("003300260024001d0020"))
    share = bytes.fromhex("0017") + len(point).to_bytes(2, "big") + point
    entry = len(share).to_bytes(2, "big") + share
    extension = b"\x00\x33" + len(entry).to_bytes(2, "big") + entry
    extensions = MESSAGE[93:old_share] + extension + MESSAGE[old_share + 42 :]
    body = MESSAGE[4:91] + len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return records(message.replace(b"example.com", name))


assert len(HELLO) == 209
