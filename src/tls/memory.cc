#include "tls/memory.h"

#include <malloc.h>
#include <openssl/crypto.h>

#include <array>
#include <cstdlib>

namespace tlsproxy::tls {
namespace {

constexpr std::size_t kNodeSize = 40;      // sizeof(WPACKET_SUB), and what malloc has usable in such a block
constexpr std::size_t kSmallestNode = 25;  // smaller requests get smaller blocks from malloc

class NodeCache {
 public:
  void* take() { return count_ == 0 ? nullptr : nodes_[--count_]; }
  bool keep(void* node) {
    if (count_ == nodes_.size()) return false;
    nodes_[count_++] = node;
    return true;
  }

 private:
  std::array<void*, 64> nodes_{};
  std::size_t count_ = 0;
};

NodeCache& cache() {
  static NodeCache nodes;
  return nodes;
}

void* allocate(std::size_t size, const char*, int) {
  if (size >= kSmallestNode && size <= kNodeSize) {
    if (void* node = cache().take()) return node;
    return std::malloc(kNodeSize);
  }
  return std::malloc(size);
}

void* reallocate(void* memory, std::size_t size, const char*, int) {
  return std::realloc(memory, size);
}

void release(void* memory, const char*, int) {
  if (memory != nullptr && ::malloc_usable_size(memory) == kNodeSize && cache().keep(memory)) return;
  std::free(memory);
}

}  // namespace

bool keep_record_nodes() {
  return CRYPTO_set_mem_functions(&allocate, &reallocate, &release) == 1;
}

}  // namespace tlsproxy::tls
