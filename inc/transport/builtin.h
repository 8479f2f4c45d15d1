// Echo and Respond: backends that live in the proxy itself, behind the verbs of a transport, so that the
// session relays to them as to any other leg.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "buffer/relay_buffer.h"
#include "transport/io_result.h"

namespace tlsproxy::transport {

// Gives back what it is given, in order; ends when its writer has ended and all was read.
class Echo {
 public:
  // `pool` must outlive it.
  explicit Echo(buffer::BlockPool& pool) : pool_(&pool) {}
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;
  ~Echo() { held_.discard(*pool_); }

  [[nodiscard]] bool may_read() const { return !held_.empty() || ended_; }
  [[nodiscard]] bool may_write() const { return held_.empty(); }
  [[nodiscard]] bool starved() const { return starved_; }

  IoResult read(std::span<std::byte> room);
  IoResult write(std::span<const std::byte> data);
  IoResult shutdown() {
    ended_ = true;
    return IoResult::done();
  }

 private:
  buffer::BlockPool* pool_;
  buffer::RelayBuffer held_;
  bool ended_ = false;
  bool starved_ = false;
};

// Says one text and ends; what it is sent is swallowed.
class Respond {
 public:
  // `text` must outlive it.
  explicit Respond(std::string_view text) : rest_(text) {}

  [[nodiscard]] static bool may_read() { return true; }
  [[nodiscard]] static bool may_write() { return true; }

  IoResult read(std::span<std::byte> room);
  static IoResult write(std::span<const std::byte> data) { return IoResult::moved(data.size()); }
  static IoResult shutdown() { return IoResult::done(); }

 private:
  std::string_view rest_;
};

}  // namespace tlsproxy::transport
