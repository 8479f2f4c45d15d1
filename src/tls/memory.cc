#include "tls/memory.h"

#include <malloc.h>
#include <openssl/crypto.h>
#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace tlsproxy::tls {
namespace {

// Blocks of one size, for requests of `kSmallest` to `kSize` bytes. kSize is what malloc has usable in a
// block asked for with it (8 more than a multiple of 16), so that a block that comes back is known by
// malloc_usable_size alone. Where a rest would be too small to be of use malloc hands out 16 bytes more.
template <std::size_t kSmallest, std::size_t kSize, std::size_t kMost>
class FreeList {
 public:
  static bool serves(std::size_t request) { return request >= kSmallest && request <= kSize; }

  void* take() {
    if (count_ == 0) return std::malloc(kSize);
    void* block = blocks_[--count_];
    fewest_ = std::min(fewest_, count_);
    ASAN_UNPOISON_MEMORY_REGION(block, kSize);
    return block;
  }

  bool keep(void* block, std::size_t usable) {
    if (usable < kSize || usable > kSize + kSlack || count_ == kMost) return false;
    ASAN_POISON_MEMORY_REGION(block, kSize);
    blocks_[count_++] = block;
    return true;
  }

  // Frees those that were here all the time since the last call: the first of the list, which is a stack.
  void trim() {
    for (std::size_t i = 0; i < fewest_; ++i) {
      ASAN_UNPOISON_MEMORY_REGION(blocks_[i], kSize);
      std::free(blocks_[i]);
    }
    std::copy(blocks_.begin() + fewest_, blocks_.begin() + count_, blocks_.begin());
    count_ -= fewest_;
    fewest_ = count_;
  }

  [[nodiscard]] std::size_t bytes() const { return count_ * kSize; }

 private:
  // Not for small blocks: there it is the size of others.
  static constexpr std::size_t kSlack = kSize < 1024 ? 0 : 16;

  std::array<void*, kMost> blocks_{};
  std::size_t count_ = 0;
  std::size_t fewest_ = 0;  // since the last trim
};

// sizeof(WPACKET_SUB) in OpenSSL 3.0; smaller requests than these get smaller blocks from malloc.
constinit FreeList<25, 40, 64> nodes;
// Input: 16384 bytes, 320 that encryption may add (RFC 5246, 6.2.3: less in 1.3), header and alignment;
// output: somewhat less (ssl3_setup_read_buffer, ssl3_setup_write_buffer).
constinit FreeList<16385, 16728, 64> record_buffers;
// Room for 16384 bytes, as BUF_MEM_grow rounds it up.
constinit FreeList<21833, 21848, 8> message_buffers;

void* allocate(std::size_t size, const char*, int) {
  if (nodes.serves(size)) return nodes.take();
  if (record_buffers.serves(size)) return record_buffers.take();
  if (message_buffers.serves(size)) return message_buffers.take();
  return std::malloc(size);
}

// Only the first allocation of a block that will be resized comes from here.
void* reallocate(void* memory, std::size_t size, const char* file, int line) {
  return memory == nullptr ? allocate(size, file, line) : std::realloc(memory, size);
}

void release(void* memory, const char*, int) {
  if (memory == nullptr) return;
  const std::size_t usable = ::malloc_usable_size(memory);
  if (nodes.keep(memory, usable) || record_buffers.keep(memory, usable) ||
      message_buffers.keep(memory, usable)) {
    return;
  }
  std::free(memory);
}

}  // namespace

bool keep_record_memory() {
  return CRYPTO_set_mem_functions(&allocate, &reallocate, &release) == 1;
}

bool trim_record_memory() {
  nodes.trim();
  record_buffers.trim();
  message_buffers.trim();
  return kept_record_memory() > 0;
}

std::size_t kept_record_memory() {
  return nodes.bytes() + record_buffers.bytes() + message_buffers.bytes();
}

}  // namespace tlsproxy::tls
