#include "support/heap.h"

#include <openssl/crypto.h>

#include <cstdlib>
#include <new>

namespace {

std::uint64_t allocation_count = 0;

void* counted(std::size_t size) {
  ++allocation_count;
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace

void* operator new(std::size_t size) {
  if (void* memory = counted(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace tlsproxy::support {

std::uint64_t allocations() { return allocation_count; }

void count_openssl_allocations() {
  CRYPTO_set_mem_functions(
      [](std::size_t size, const char*, int) { return counted(size); },
      [](void* memory, std::size_t size, const char*, int) {
        ++allocation_count;
        return std::realloc(memory, size);
      },
      [](void* memory, const char*, int) { std::free(memory); });
}

}  // namespace tlsproxy::support
