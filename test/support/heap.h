// What the test program has on the heap, whoever put it there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tlsproxy::support {

// Bytes of heap in use, with what the allocator adds to each block where it tells.
std::size_t heap_in_use();

// Calls of malloc and its kin since the program began.
std::uint64_t allocations();

// Starts counting where that takes a call (under AddressSanitizer).
void count_allocations();

}  // namespace tlsproxy::support
