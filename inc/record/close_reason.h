// CloseReason: why a session ended. There is no end without one.
//
// Log words and the manner of ending (whether a peer may be told that its stream is complete) are
// total functions of it: a value without an answer does not compile.
#pragma once

#include <cstdint>
#include <string_view>

namespace tlsproxy::record {

// Whose doing the end was.
enum class Side : std::uint8_t { client, backend, proxy };

enum class CloseReason : std::uint8_t {
  finished,              // both directions ended in order
  client_left,           // the client ended before its session reached a backend
  not_tls,               // first bytes are no TLS handshake, and no route takes those
  bad_hello,             // malformed or oversized ClientHello
  handshake_failed,      // TLS with the client; the alert is in the record
  certificate_rejected,  // a client certificate that its policy does not accept, or none
  name_changed,          // the ClientHello after a HelloRetryRequest named another host (RFC 8446, 4.1.2)
  no_route,              // no route matches
  no_backend,            // every server tried refused, was unreachable, or none is up
  backend_tls_failed,    // TLS with the backend, for any cause but its certificate
  backend_rejected,      // the backend's certificate does not satisfy our verification
  reset,                 // a leg was reset (RST, or the network gave up)
  truncated,             // a TLS leg ended without close_notify
  protocol_error,        // a broken TLS record, or an alert, while relaying
  preread_timeout,
  handshake_timeout,
  connect_timeout,
  idle_timeout,        // no byte either way
  write_timeout,       // bytes waited, and their receiver took none
  half_close_timeout,  // no byte after one direction had ended
  drain,               // the drain limit after quit or reload
  stopped,             // fast stop
  no_descriptor,       // out of file descriptors, ports or socket memory
  no_memory,
};

constexpr int kCloseReasons = static_cast<int>(CloseReason::no_memory) + 1;

std::string_view to_string(Side side);

// The word for logs and metrics: the enumerator's own name.
std::string_view to_string(CloseReason reason);

// Whether a stream that ends for this reason is complete, or its receiver is told the end in order
// (close_notify, FIN) all the same because the proxy's policy ended it. False means that bytes may
// be missing that the proxy cannot know of: then a TLS receiver gets no close_notify, and a plain
// receiver is reset after what did arrive.
bool is_orderly(CloseReason reason);

}  // namespace tlsproxy::record
