#include "transport/builtin.h"

#include <algorithm>
#include <cstring>

namespace tlsproxy::transport {

IoResult Echo::read(std::span<std::byte> room) {
  if (held_.empty()) return ended_ ? IoResult{IoStatus::end, 0, 0} : IoResult::blocked();
  const std::span<const std::byte> pending = held_.pending();
  const std::size_t bytes = std::min(room.size(), pending.size());
  std::memcpy(room.data(), pending.data(), bytes);
  held_.consume(bytes);
  held_.release(*pool_);
  return IoResult::moved(bytes);
}

IoResult Echo::write(std::span<const std::byte> data) {
  if (!held_.empty()) return IoResult::blocked();
  starved_ = !held_.prepare(*pool_);
  if (starved_) return IoResult::blocked();
  const std::span<std::byte> room = held_.room();
  const std::size_t bytes = std::min(room.size(), data.size());
  std::memcpy(room.data(), data.data(), bytes);
  held_.commit(bytes);
  return IoResult::moved(bytes);
}

IoResult Respond::read(std::span<std::byte> room) {
  if (rest_.empty()) return {IoStatus::end, 0, 0};
  const std::size_t bytes = std::min(room.size(), rest_.size());
  std::memcpy(room.data(), rest_.data(), bytes);
  rest_.remove_prefix(bytes);
  return IoResult::moved(bytes);
}

}  // namespace tlsproxy::transport
