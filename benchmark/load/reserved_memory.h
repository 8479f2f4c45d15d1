// ReservedMemory: a large array of bytes, zero at first, of which the system gives only the pages that
// are touched.
#pragma once

#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "base/result.h"

namespace tlsproxy::load {

class ReservedMemory {
 public:
  static base::Result<ReservedMemory> make(std::size_t size) {
    void* data =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return base::system_failure("cannot reserve memory", errno);
    return ReservedMemory({static_cast<std::uint8_t*>(data), size});
  }

  ReservedMemory(ReservedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ReservedMemory& operator=(ReservedMemory&&) = delete;
  ~ReservedMemory() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  [[nodiscard]] std::span<std::uint8_t> bytes() const { return bytes_; }

 private:
  explicit ReservedMemory(std::span<std::uint8_t> bytes) : bytes_(bytes) {}

  std::span<std::uint8_t> bytes_;
};

}  // namespace tlsproxy::load
