#include "support/heap.h"

#include <malloc.h>

namespace {

std::uint64_t allocation_count = 0;

}  // namespace

#ifdef __SANITIZE_ADDRESS__
extern "C" int __sanitizer_install_malloc_and_free_hooks(void (*on_malloc)(const volatile void*, std::size_t),
                                                         void (*on_free)(const volatile void*));

void tlsproxy::support::count_allocations() {
  __sanitizer_install_malloc_and_free_hooks([](const volatile void*, std::size_t) { ++allocation_count; },
                                            [](const volatile void*) {});
}

extern "C" std::size_t __sanitizer_get_current_allocated_bytes();

std::size_t tlsproxy::support::heap_in_use() {
  return __sanitizer_get_current_allocated_bytes();
}
#else
// glibc's own entry points, so that the program may define malloc itself (glibc manual, "Replacing malloc").
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);

void* malloc(std::size_t size) {
  ++allocation_count;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocation_count;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++allocation_count;
  return __libc_realloc(memory, size);
}
}

void tlsproxy::support::count_allocations() {}

std::size_t tlsproxy::support::heap_in_use() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}
#endif

std::uint64_t tlsproxy::support::allocations() {
  return allocation_count;
}
