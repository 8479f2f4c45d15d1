// ByteWriter, ByteReader: numbers and texts laid out one after the other, for what processes of one
// program hand each other (bundles, channel messages). Host byte order; no alignment.
//
// Neither allocates: the writer fills memory of its caller's, the reader gives views into it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace tlsproxy::server {

class ByteWriter {
 public:
  // How many bytes each item takes.
  static constexpr std::size_t kNumber = sizeof(std::uint64_t);
  static std::size_t size_of(std::string_view text) { return kNumber + text.size(); }

  // `space` must hold everything that is written.
  explicit ByteWriter(std::span<char> space) : space_(space) {}

  void number(std::uint64_t value);
  void text(std::string_view value);

  [[nodiscard]] std::size_t used() const { return used_; }

 private:
  void append(const void* data, std::size_t size);

  std::span<char> space_;
  std::size_t used_ = 0;
};

// Reads what a ByteWriter wrote. Whatever does not fit makes ok() false for good, and everything read
// from then on is 0 or empty, so callers may check once at the end.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : left_(bytes) {}

  std::uint64_t number();
  std::string_view text();

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool at_end() const { return left_.empty(); }

 private:
  std::string_view take(std::uint64_t size);

  std::string_view left_;
  bool ok_ = true;
};

}  // namespace tlsproxy::server
