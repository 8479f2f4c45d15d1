// Cause: why a connection failed; the words of the JSON.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tlsproxy::load {

enum class Cause : std::uint8_t {
  connect,        // refused, unreachable
  ports,          // no local port left
  handshake,      // TLS failed, or the peer ended during it
  reset,          // ECONNRESET or EPIPE
  closed,         // the peer ended before the answer was complete
  timeout,        // no progress
  close_timeout,  // our end was not answered by the peer's
  mismatch,       // bytes other than those sent
  other,
};

constexpr std::array<const char*, 9> kCauseNames{"connect", "ports",         "handshake", "reset", "closed",
                                                 "timeout", "close_timeout", "mismatch",  "other"};

using CauseCounts = std::array<std::uint64_t, kCauseNames.size()>;

constexpr std::size_t index_of(Cause cause) {
  return static_cast<std::size_t>(cause);
}

}  // namespace tlsproxy::load
