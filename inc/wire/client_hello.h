// The ClientHello, read without answering it: which host the client asks for and which protocols.
//
// Pure: the whole window from the connection's first byte goes in, a verdict comes out. Feeding byte by
// byte gives the verdict of feeding at once, and a verdict other than `need_more` does not change when
// more bytes are there. Sources: RFC 8446 (4.1.2 ClientHello, 5.1 record layer), RFC 5246 (7.4.1.2),
// RFC 6066 (3 server_name), RFC 7301 (3.1 ALPN).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tlsproxy::wire {

enum class HelloVerdict : std::uint8_t {
  need_more,  // all bytes so far fit a ClientHello that is not complete
  hello,      // complete; the fields are filled in
  not_tls,    // no TLS handshake record of version 3.x: decided at the first byte that shows it
  malformed,  // a TLS handshake record, but no well-formed ClientHello
  too_large,  // the announced ClientHello cannot fit into the limit
};

std::string_view to_string(HelloVerdict verdict);

struct ClientHello {
  HelloVerdict verdict = HelloVerdict::need_more;
  std::optional<std::string> sni;  // lower case, without a trailing dot; absent when none was sent
  std::vector<std::string> alpn;   // as offered
  bool tls1_3 = false;             // supported_versions offers TLS 1.3
};

// `window` is everything received so far. `limit` bounds the records that hold the hello, in bytes
// (including record headers); a complete hello within it is accepted whatever follows in the window.
// The hello may be spread over several records (RFC 8446, 5.1), cut anywhere.
//
// server_name: exactly one host_name entry, 1 to 255 bytes, without control bytes, spaces or NUL;
// otherwise malformed. An extension given twice is malformed. A hello without extensions is complete.
ClientHello parse_client_hello(std::span<const std::byte> window, std::size_t limit);

}  // namespace tlsproxy::wire
