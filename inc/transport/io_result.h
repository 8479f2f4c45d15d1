// IoResult: what one verb of a transport did. Three facts, no errno to interpret elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tlsproxy::transport {

enum class IoStatus : std::uint8_t {
  ok,           // `bytes` were moved (a verb without bytes: it is done)
  would_block,  // nothing now; news from the loop (or from the pool, see starved()) will change that
  end,          // the peer ended its direction in order: FIN, or close_notify under TLS
  truncated,    // a TLS peer ended without close_notify (RFC 8446, 6.1)
  reset,        // the connection is gone: RST, or the network gave up
  failed,       // it broke otherwise: a TLS protocol error, or no socket memory (`error` tells)
};

// In two registers, since every call of the data path returns one.
struct IoResult {
  std::size_t bytes = 0;
  int error = 0;  // errno for reset and failed, 0 when the fault is not the system's
  IoStatus status = IoStatus::would_block;

  constexpr IoResult() = default;
  constexpr IoResult(IoStatus what, std::size_t moved_bytes, int errno_value)
      : bytes(moved_bytes), error(errno_value), status(what) {}

  static IoResult moved(std::size_t bytes) { return {IoStatus::ok, bytes, 0}; }
  static IoResult done() { return {IoStatus::ok, 0, 0}; }
  static IoResult blocked() { return {IoStatus::would_block, 0, 0}; }
  [[nodiscard]] bool ok() const { return status == IoStatus::ok; }
  [[nodiscard]] bool would_block() const { return status == IoStatus::would_block; }
};
static_assert(sizeof(IoResult) == 16);

}  // namespace tlsproxy::transport
