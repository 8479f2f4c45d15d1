#include "server/bytes.h"

#include <cstring>

#include "base/check.h"

namespace tlsproxy::server {

void ByteWriter::number(std::uint64_t value) {
  append(&value, sizeof(value));
}

void ByteWriter::text(std::string_view value) {
  number(value.size());
  append(value.data(), value.size());
}

void ByteWriter::append(const void* data, std::size_t size) {
  TLSPROXY_CHECK(size <= space_.size() - used_, "the writer's space holds what is written");
  if (size > 0) std::memcpy(space_.data() + used_, data, size);
  used_ += size;
}

std::uint64_t ByteReader::number() {
  std::uint64_t value = 0;
  const std::string_view bytes = take(sizeof(value));
  if (ok_) std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::string_view ByteReader::text() {
  return take(number());
}

std::string_view ByteReader::take(std::uint64_t size) {
  if (!ok_ || size > left_.size()) {
    ok_ = false;
    left_ = {};
    return {};
  }
  const std::string_view taken = left_.substr(0, static_cast<std::size_t>(size));
  left_.remove_prefix(taken.size());
  return taken;
}

}  // namespace tlsproxy::server
