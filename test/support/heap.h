// Counts heap allocations of the test program, whoever makes them.
#pragma once

#include <cstdint>

namespace tlsproxy::support {

// Calls of malloc and its kin since the program began.
std::uint64_t allocations();

// Starts counting where that takes a call (under AddressSanitizer).
void count_allocations();

}  // namespace tlsproxy::support
