// Counts heap allocations of the test program: operator new, and what OpenSSL asks for.
#pragma once

#include <cstdint>

namespace tlsproxy::support {

// Allocations since the program began.
std::uint64_t allocations();

// Makes OpenSSL's count too. First thing in main(): OpenSSL refuses once it has allocated.
void count_openssl_allocations();

}  // namespace tlsproxy::support
