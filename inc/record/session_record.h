// SessionRecord: the facts of one session, as plain data.
//
// A session is asked for it when somebody wants to describe it, as the access log does at its end: what a
// session holds all its life is less (relay/session.h). Nothing here knows a Session. Text that a peer chose
// is kept as it came and escaped when written.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "os/address.h"
#include "record/close_reason.h"

namespace tlsproxy::record {

// TLS facts of one leg. Views point to OpenSSL's static names.
struct TlsFacts {
  std::string_view version;  // "TLSv1.3"
  std::string_view cipher;   // IANA name, "TLS_AES_128_GCM_SHA256"
  std::string_view group;    // "x25519"; empty when none was negotiated
  bool resumed = false;
};

// A fatal alert; description as in RFC 8446, 6 ("unknown_ca").
struct TlsAlert {
  std::string description;
  bool sent = false;  // by us; otherwise received
  Side leg = Side::client;
};

// What a ClientHello said.
struct HelloFacts {
  std::string sni;                        // empty: none sent
  std::vector<std::string> alpn_offered;  // until a route is chosen; to the end when passed through
};

// What went wrong with TLS, on either leg.
struct TlsFailure {
  std::string
      verify_error;  // why a certificate was rejected, X509_verify_cert_error_string; empty: it was not
  std::optional<TlsAlert> alert;
};

// Views are those of the session and its generation: valid until it lets go of its legs.
struct SessionRecord {
  using Clock = std::chrono::steady_clock;

  // The id of a session: unique on one machine while it runs (worker's pid, counter).
  std::uint64_t id = 0;
  std::chrono::system_clock::time_point started_at{};  // accept
  std::string_view listener;
  std::string_view route;  // the backend's name the route leads to; empty before the choice
  os::SocketAddress client;
  os::SocketAddress local;   // where the client connected to
  os::SocketAddress server;  // the last one tried

  std::string_view sni;           // empty: none sent, or not looked at
  std::string_view alpn;          // negotiated, or the client's first offer when passed through
  std::optional<TlsFacts> tls;    // client leg, when terminated
  std::string client_subject;     // client certificate, RFC 2253 form; empty: none
  std::string_view verify_error;  // why a certificate was rejected, X509_verify_cert_error_string
  std::optional<TlsAlert> alert;

  std::uint64_t bytes_from_client = 0;  // payload, without TLS framing
  std::uint64_t bytes_to_client = 0;
  std::uint64_t bytes_from_backend = 0;
  std::uint64_t bytes_to_backend = 0;
  std::uint32_t tries = 0;  // servers tried

  Clock::time_point start{};
  std::optional<Clock::time_point> handshake_done;  // absent: not reached
  std::optional<Clock::time_point> connect_start;
  std::optional<Clock::time_point> connect_done;  // with TLS to the backend, when that is done too
  std::optional<Clock::time_point> first_byte;    // from the backend
  Clock::time_point end{};                        // or now, of a session that goes on

  CloseReason reason = CloseReason::finished;
  Side side = Side::proxy;
};

}  // namespace tlsproxy::record
